package leasehold.peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;

import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A worker for Redisson: it does what it is told on standard input, line by line.
 *
 * <p>It says {@code ready}, the time of its clock and its versions, and answers each order by a line: {@code ok} and
 * numbers, or {@code error} and what happened. It ends when its input does, whatever it is doing.
 */
public final class Worker {
    /** How many threads push items, and how many take them. */
    private static final int TASKS = 16;

    private RedissonClient redisson;

    public static void main(String[] args) throws Exception {
        System.out.println("ready " + System.nanoTime()
                + " Redisson " + Redisson.class.getPackage().getImplementationVersion()
                + " on Java " + System.getProperty("java.version"));
        Worker worker = new Worker();
        ExecutorService orders = Executors.newSingleThreadExecutor();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] order = line.split(" ");
            orders.execute(() -> worker.answer(order));
        }
        // Nobody is there any more to wait for an answer.
        Runtime.getRuntime().halt(0);
    }

    private void answer(String[] order) {
        String answer;
        try {
            List<? extends Number> figures = follow(order);
            answer = "ok " + figures.stream().map(Object::toString).collect(Collectors.joining(" "));
        } catch (Throwable problem) {
            answer = "error " + problem.toString().replaceAll("\\s+", " ");
        }
        System.out.println(answer);
        System.out.flush();
    }

    private List<? extends Number> follow(String[] order) throws Exception {
        if (order[0].equals("connect")) {
            Config config = new Config();
            config.useSingleServer().setAddress(order[1]);
            redisson = Redisson.create(config);
            return List.of();
        }
        String name = order[2];
        int tasks = Integer.parseInt(order[3]);
        Window window = new Window(Long.parseLong(order[4]), Long.parseLong(order[5]));
        switch (order[0]) {
            case "read":
                return Work.readers(redisson.getReadWriteLock(name).readLock(), tasks, window);
            case "write":
                return Work.writer(redisson.getReadWriteLock(name).writeLock(), window);
            case "permits": {
                RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
                semaphore.trySetPermits(tasks);
                return Work.permits(semaphore, window);
            }
            case "offer":
                return Queues.offer(queue(name), window);
            case "take":
                return Queues.take(queue(name));
            case "fill":
                return Queues.fill(queue(name), TASKS, tasks, window);
            case "empty":
                return Queues.empty(queue(name), TASKS, tasks);
            case "open":
                return Queues.open(redisson, name, window);
            case "wait":
                return Queues.await(redisson, name, window);
            default:
                return locked(order[0], order[1], name, tasks, window);
        }
    }

    private List<? extends Number> locked(String row, String kind, String name, int tasks, Window window)
            throws Exception {
        Lock lock = lock(kind, name);
        switch (row) {
            case "pairs":
                return Work.pairs(lock, window);
            case "nested":
                return Work.nested(lock, window);
            case "floor":
                return Work.floor(redisson, window);
            case "crowd":
                return Work.rush(task -> lock, tasks, window);
            case "own":
                return Work.rush(task -> lock(kind, name + ":" + task), tasks, window);
            case "drain":
                return Work.drain(lock, tasks, window);
            case "relay":
                return Work.relay(lock, window, true);
            case "empty":
                return Work.relay(lock, window, false);
            default:
                throw new IllegalArgumentException("not a row: " + row);
        }
    }

    private RBlockingQueue<String> queue(String name) {
        return redisson.getBlockingQueue(name, StringCodec.INSTANCE);
    }

    private Lock lock(String kind, String name) {
        switch (kind) {
            case "lock":
                return plain(redisson.getLock(name));
            case "fair":
                return plain(redisson.getFairLock(name));
            case "fenced": {
                // Whoever uses this lock wants its token.
                RFencedLock lock = redisson.getFencedLock(name);
                return new Lock() {
                    @Override
                    public void take() {
                        lock.lockAndGetToken();
                    }

                    @Override
                    public void giveBack() {
                        lock.unlock();
                    }
                };
            }
            default:
                throw new IllegalArgumentException("not a lock: " + kind);
        }
    }

    private static Lock plain(RLock lock) {
        return new Lock() {
            @Override
            public void take() {
                lock.lock();
            }

            @Override
            public void giveBack() {
                lock.unlock();
            }
        };
    }
}
