package leasehold.peers;

/** A lock of some name. The thread is the owner. */
interface Lock {
    void take();

    void giveBack();
}
