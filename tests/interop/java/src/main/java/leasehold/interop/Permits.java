package leasehold.interop;

import java.util.concurrent.TimeUnit;

import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/** What both of Redisson's semaphores can do. */
interface Permits {
    /** The permit's id; "-" where it has none. */
    String acquire() throws InterruptedException;

    /** The same, without waiting; "none" where there is none. */
    String tryAcquire() throws InterruptedException;

    void release(String id);

    /** Permits that nobody owns and that never end. */
    record Plain(RSemaphore semaphore) implements Permits {
        @Override
        public String acquire() throws InterruptedException {
            semaphore.acquire();
            return "-";
        }

        @Override
        public String tryAcquire() {
            return semaphore.tryAcquire() ? "-" : "none";
        }

        @Override
        public void release(String id) {
            semaphore.release();
        }
    }

    /** Permits that end after a lease. */
    record Expirable(RPermitExpirableSemaphore semaphore, long leaseMs) implements Permits {
        @Override
        public String acquire() throws InterruptedException {
            return semaphore.acquire(leaseMs, TimeUnit.MILLISECONDS);
        }

        @Override
        public String tryAcquire() throws InterruptedException {
            String id = semaphore.tryAcquire(0, leaseMs, TimeUnit.MILLISECONDS);
            return id == null ? "none" : id;
        }

        @Override
        public void release(String id) {
            semaphore.release(id);
        }
    }
}
