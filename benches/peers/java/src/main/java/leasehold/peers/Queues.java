package leasehold.peers;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RBlockingQueue;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

/** What a worker does with queues and latches: as the workers in Rust do, with a thread for each of their tasks. */
final class Queues {
    private static final long BETWEEN_PUSHES_MS = 2;
    private static final long BETWEEN_LATCHES = 20_000_000;
    private static final long AWAITED_AFTER = 6_000_000;
    private static final long OPENED_AFTER = 14_000_000;
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();

    private Queues() {
    }

    static List<Long> offer(RBlockingQueue<String> queue, Window window) throws InterruptedException {
        waitUntil(window.from());
        long pushed = 0;
        while (System.nanoTime() < window.until()) {
            queue.put(Long.toString(System.nanoTime()));
            pushed++;
            Thread.sleep(BETWEEN_PUSHES_MS);
        }
        queue.put("0");
        return List.of(pushed);
    }

    static List<Long> take(RBlockingQueue<String> queue) throws InterruptedException {
        List<Long> spans = new ArrayList<>();
        while (true) {
            long pushedAt = Long.parseLong(queue.take());
            if (pushedAt == 0) {
                return spans;
            }
            spans.add(System.nanoTime() - pushedAt);
        }
    }

    static List<Long> fill(RBlockingQueue<String> queue, int tasks, int each, Window window) throws Exception {
        all(tasks, () -> {
            waitUntil(window.from());
            for (int i = 0; i < each; i++) {
                queue.put(Long.toString(System.nanoTime()));
            }
        });
        return List.of();
    }

    static List<Long> empty(RBlockingQueue<String> queue, int tasks, int each) throws Exception {
        all(tasks, () -> {
            for (int i = 0; i < each; i++) {
                queue.take();
            }
        });
        return List.of(System.nanoTime());
    }

    static List<Long> open(RedissonClient redisson, String name, Window window) throws InterruptedException {
        List<Long> opened = new ArrayList<>();
        for (int i = 0; window.from() + (i + 1) * BETWEEN_LATCHES <= window.until(); i++) {
            long at = window.from() + i * BETWEEN_LATCHES;
            RCountDownLatch latch = redisson.getCountDownLatch(name + ":" + i);
            waitUntil(at);
            latch.trySetCount(1);
            waitUntil(at + OPENED_AFTER);
            opened.add(System.nanoTime());
            latch.countDown();
        }
        return opened;
    }

    static List<Long> await(RedissonClient redisson, String name, Window window) throws InterruptedException {
        List<Long> waits = new ArrayList<>();
        for (int i = 0; window.from() + (i + 1) * BETWEEN_LATCHES <= window.until(); i++) {
            RCountDownLatch latch = redisson.getCountDownLatch(name + ":" + i);
            waitUntil(window.from() + i * BETWEEN_LATCHES + AWAITED_AFTER);
            waits.add(System.nanoTime());
            latch.await();
            waits.add(System.nanoTime());
        }
        return waits;
    }

    private interface Task {
        void run() throws Exception;
    }

    private static void all(int tasks, Task task) throws Exception {
        List<Future<?>> running = new ArrayList<>();
        for (int i = 0; i < tasks; i++) {
            running.add(THREADS.submit(() -> {
                task.run();
                return null;
            }));
        }
        for (Future<?> ended : running) {
            ended.get();
        }
    }

    private static void waitUntil(long at) throws InterruptedException {
        TimeUnit.NANOSECONDS.sleep(at - System.nanoTime());
    }
}
