package leasehold.peers;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.IntFunction;

import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** What a worker does in each row: as the workers in Rust do, with a thread for each of their tasks. */
final class Work {
    private static final long HOLD = 1_000_000;
    private static final long QUEUEING_MS = 100;
    private static final long READ_MS = 2;
    private static final long BETWEEN_WRITES_MS = 50;
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();

    private Work() {
    }

    static List<Double> pairs(Lock lock, Window window) {
        Times times = new Times(window);
        while (times.goOn()) {
            lock.take();
            lock.giveBack();
            times.note(1);
        }
        return times.figures();
    }

    static List<Double> nested(Lock lock, Window window) {
        lock.take();
        Times times = new Times(window);
        while (times.goOn()) {
            lock.take();
            lock.giveBack();
            times.note(1);
        }
        lock.giveBack();
        return times.figures();
    }

    static List<Double> floor(RedissonClient redisson, Window window) {
        RScript script = redisson.getScript(StringCodec.INSTANCE);
        String hash = script.scriptLoad("return 1");
        Times times = new Times(window);
        while (times.goOn()) {
            for (int i = 0; i < 2; i++) {
                script.evalSha(RScript.Mode.READ_WRITE, hash, RScript.ReturnType.LONG, Collections.emptyList());
            }
            times.note(1);
        }
        return times.figures();
    }

    static List<Long> rush(IntFunction<Lock> locks, int tasks, Window window) throws Exception {
        List<Future<Long>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            Lock lock = locks.apply(task);
            running.add(THREADS.submit(() -> {
                long turns = 0;
                while (System.nanoTime() < window.until()) {
                    lock.take();
                    turns += window.contains(System.nanoTime()) ? 1 : 0;
                    lock.giveBack();
                }
                return turns;
            }));
        }
        List<Long> counts = new ArrayList<>();
        for (Future<Long> turns : running) {
            counts.add(turns.get());
        }
        return counts;
    }

    static List<Long> drain(Lock lock, int waiters, Window window) throws Exception {
        List<Long> figures = new ArrayList<>();
        figures.add(0L);
        while (figures.size() == 1 || System.nanoTime() < window.until()) {
            lock.take();
            List<Future<long[]>> running = new ArrayList<>();
            for (int waiter = 0; waiter < waiters; waiter++) {
                running.add(THREADS.submit(() -> {
                    lock.take();
                    long heldAt = System.nanoTime();
                    while (System.nanoTime() < heldAt + HOLD) {
                        Thread.onSpinWait();
                    }
                    long leftAt = System.nanoTime();
                    lock.giveBack();
                    return new long[] {leftAt, leftAt - heldAt};
                }));
            }
            Thread.sleep(QUEUEING_MS);
            long releasedAt = System.nanoTime();
            lock.giveBack();
            long endedAt = releasedAt;
            long held = 0;
            for (Future<long[]> turn : running) {
                long[] hold = turn.get();
                endedAt = Math.max(endedAt, hold[0]);
                held += hold[1];
            }
            figures.set(0, figures.get(0) + waiters + 1);
            figures.add((endedAt - releasedAt - held) / waiters);
        }
        return figures;
    }

    static List<Long> relay(Lock lock, Window window, boolean holds) throws InterruptedException {
        List<Long> turns = new ArrayList<>();
        while (System.nanoTime() < window.until()) {
            lock.take();
            long heldAt = System.nanoTime();
            if (holds) {
                Thread.sleep(HOLD / 1_000_000);
            }
            long leftAt = System.nanoTime();
            lock.giveBack();
            if (window.contains(heldAt)) {
                turns.add(heldAt);
                turns.add(leftAt);
            }
        }
        return turns;
    }

    static List<Long> readers(RLock lock, int readers, Window window) throws Exception {
        List<Future<Long>> running = new ArrayList<>();
        for (int reader = 0; reader < readers; reader++) {
            running.add(THREADS.submit(() -> {
                long reads = 0;
                while (System.nanoTime() < window.until()) {
                    lock.lock();
                    reads += window.contains(System.nanoTime()) ? 1 : 0;
                    Thread.sleep(READ_MS);
                    lock.unlock();
                }
                return reads;
            }));
        }
        List<Long> counts = new ArrayList<>();
        for (Future<Long> reads : running) {
            counts.add(reads.get());
        }
        return counts;
    }

    static List<Long> writer(RLock lock, Window window) throws InterruptedException {
        List<Long> writes = new ArrayList<>();
        while (System.nanoTime() < window.until()) {
            long askedAt = System.nanoTime();
            lock.lock();
            long heldAt = System.nanoTime();
            Thread.sleep(HOLD / 1_000_000);
            lock.unlock();
            if (heldAt >= window.from()) {
                writes.add(askedAt);
                writes.add(heldAt);
            }
            Thread.sleep(BETWEEN_WRITES_MS);
        }
        return writes;
    }

    static List<Long> permits(RPermitExpirableSemaphore semaphore, Window window) throws InterruptedException {
        List<Long> turns = new ArrayList<>();
        while (System.nanoTime() < window.until()) {
            String permit = semaphore.acquire();
            long heldAt = System.nanoTime();
            Thread.sleep(HOLD / 1_000_000);
            long leftAt = System.nanoTime();
            semaphore.release(permit);
            if (window.contains(heldAt)) {
                turns.add(heldAt);
                turns.add(leftAt);
            }
        }
        return turns;
    }
}
