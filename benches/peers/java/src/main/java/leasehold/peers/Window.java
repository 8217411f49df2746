package leasehold.peers;

/** From when until when something is measured, in nanoseconds of the clock that all processes share. */
record Window(long from, long until) {
    boolean contains(long at) {
        return from <= at && at < until;
    }
}
