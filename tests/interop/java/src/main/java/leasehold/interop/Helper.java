package leasehold.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisConnectionException;
import org.redisson.client.codec.ByteArrayCodec;
import org.redisson.client.codec.Codec;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.SingleServerConfig;
import org.redisson.config.SubscriptionMode;

/**
 * Redisson, told what to do on standard input: {@code id thread verb argument...} on a line.
 *
 * <p>In Redisson the thread is the owner. Each thread that is named is one of its own, and runs its commands in their
 * order; the answer is {@code id began ended ok value} or {@code id began ended error class message}, with times in
 * microseconds since 1970. Names of locks are the hexadecimal form of their UTF-8. With the verb {@code end}, which has no
 * answer, all that was there before is gone, and a test may begin. The process ends when its input does.
 */
public final class Helper {
    /** How often it asks where the masters are: its default for Sentinels; for a cluster that is 5 s. */
    private static final int SCAN_INTERVAL_MS = 1_000;
    private static final int ATTEMPTS_TO_CONNECT = 5;

    /** Those of one test: threads of the test before may wait still. */
    private final ThreadGroup group = new ThreadGroup("test");
    private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
    /** Of the only server, or of the first. */
    private volatile RedissonClient redisson;
    /** One for each server. */
    private volatile List<RedissonClient> clients;

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Helper helper = new Helper();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[2].equals("end")) {
                helper.end();
                helper = new Helper();
            } else {
                helper.begin(words);
            }
        }
        // Whatever waits still: the tests that started this process are gone.
        Runtime.getRuntime().halt(0);
    }

    private void begin(String[] words) {
        threads.computeIfAbsent(words[1], name -> Executors.newSingleThreadExecutor(task -> new Thread(group, task, name)))
                .execute(() -> answer(words));
    }

    /** Nothing is given back, as if the process had ended. */
    private void end() {
        threads.values().forEach(ExecutorService::shutdownNow);
        for (RedissonClient client : clients) {
            new Thread(() -> client.shutdown(0, 1, TimeUnit.SECONDS)).start();
        }
    }

    private void answer(String[] words) {
        long began = now();
        String outcome;
        long ended;
        try {
            Object value = run(words[2], Arrays.copyOfRange(words, 3, words.length));
            ended = now();
            outcome = "ok " + value;
        } catch (Throwable problem) {
            ended = now();
            String message = String.valueOf(problem.getMessage()).replaceAll("\\s+", " ");
            outcome = "error " + problem.getClass().getSimpleName() + " " + message;
        }
        synchronized (System.out) {
            System.out.println(words[0] + " " + began + " " + ended + " " + outcome);
            System.out.flush();
        }
    }

    private Object run(String verb, String[] args) throws Exception {
        switch (verb) {
            case "connect":
                connect(args[0], number(args[1]), args.length > 2 ? args[2] : "");
                return "connected";
            case "id":
                return clients.stream()
                        .map(client -> client.getId() + ":" + Thread.currentThread().getId())
                        .collect(Collectors.joining(","));
            case "is-parked":
                return bit(isParked(args[0]));
            case "lock":
                lock(args).lock();
                return 1;
            case "lock-for":
                lock(args).lock(number(args[2]), TimeUnit.MILLISECONDS);
                return 1;
            case "lock-for-seconds":
                lock(args).lock(number(args[2]), TimeUnit.SECONDS);
                return 1;
            case "try-lock":
                return bit(lock(args).tryLock());
            case "try-lock-within":
                return bit(lock(args).tryLock(number(args[2]), TimeUnit.MILLISECONDS));
            case "try-lock-within-for":
                return bit(lock(args).tryLock(number(args[2]), number(args[3]), TimeUnit.MILLISECONDS));
            case "unlock":
                lock(args).unlock();
                return 1;
            case "force-unlock":
                return bit(lock(args).forceUnlock());
            case "hold-count":
                return lock(args).getHoldCount();
            case "is-locked":
                return bit(lock(args).isLocked());
            case "is-held-by-current-thread":
                return bit(lock(args).isHeldByCurrentThread());
            case "is-held-by-thread":
                return bit(lock(args).isHeldByThread(number(args[2])));
            case "remaining-ttl":
                return lock(args).remainTimeToLive();
            case "lock-and-get-token":
                return fenced(args).lockAndGetToken();
            case "try-lock-and-get-token": {
                Long token = fenced(args).tryLockAndGetToken(number(args[2]), TimeUnit.MILLISECONDS);
                return token == null ? -1 : token;
            }
            case "get-token":
                return fenced(args).getToken();
            case "latch-set":
                return bit(redisson.getCountDownLatch(name(args[0])).trySetCount(number(args[1])));
            case "latch-count":
                return redisson.getCountDownLatch(name(args[0])).getCount();
            case "latch-down":
                redisson.getCountDownLatch(name(args[0])).countDown();
                return 1;
            case "latch-await":
                redisson.getCountDownLatch(name(args[0])).await();
                return 1;
            case "latch-delete":
                return bit(redisson.getCountDownLatch(name(args[0])).delete());
            case "queue-offer":
                return bit(redisson.getQueue(name(args[0]), codec(args[1])).offer(item(args[1], args[2])));
            case "queue-poll":
                return shown(redisson.getQueue(name(args[0]), codec(args[1])).poll());
            case "queue-poll-last":
                return shown(redisson.getDeque(name(args[0]), codec(args[1])).pollLast());
            case "queue-offer-first":
                return bit(redisson.getDeque(name(args[0]), codec(args[1])).offerFirst(item(args[1], args[2])));
            case "queue-take":
                return shown(redisson.getBlockingQueue(name(args[0]), codec(args[1])).take());
            case "queue-size":
                return redisson.getQueue(name(args[0]), codec(args[1])).size();
            case "set-permits": {
                RSemaphore semaphore = redisson.getSemaphore(name(args[0]));
                return bit(semaphore.trySetPermits((int) number(args[1])));
            }
            case "permits":
                return redisson.getSemaphore(name(args[0])).availablePermits();
            case "acquire":
                return permits(args).acquire();
            case "try-acquire":
                return permits(args).tryAcquire();
            case "release":
                permits(args).release(args[2]);
                return 1;
            case "permit-turns":
                return permitTurns(args, (int) number(args[2]), (int) number(args[3]));
            case "stampede":
                return new Stampede(lock(args), args[2], number(args[3]), number(args[5]), args[0].equals("read"))
                        .run((int) number(args[4]));
            case "crash":
                Runtime.getRuntime().halt(1);
                return 0;
            default:
                throw new IllegalArgumentException("not a command: " + verb);
        }
    }

    /**
     * To one server, or to several with commas between them, each with a client of its own. With one client to a
     * deployment: {@code kind=node,node...}, where the first of {@code sentinel} is the name of the master.
     */
    private void connect(String where, long watchdogMs, String prefix) throws ReflectiveOperationException {
        List<RedissonClient> connected = new ArrayList<>();
        String[] kindAndNodes = where.split("=");
        String[] each = kindAndNodes[kindAndNodes.length - 1].split(",");
        if (kindAndNodes.length > 1) {
            connected.add(clientOf(kindAndNodes[0], each, watchdogMs));
        } else {
            for (String url : each) {
                connected.add(client(url, watchdogMs, prefix, each.length > 1));
            }
        }
        clients = connected;
        redisson = connected.get(0);
    }

    private static RedissonClient clientOf(String kind, String[] nodes, long watchdogMs) {
        Config config = config(watchdogMs);
        BaseMasterSlaveServersConfig<?> servers;
        if (kind.equals("sentinel")) {
            String[] sentinels = Arrays.copyOfRange(nodes, 1, nodes.length);
            servers = config.useSentinelServers()
                    .setMasterName(nodes[0])
                    .setScanInterval(SCAN_INTERVAL_MS)
                    .addSentinelAddress(sentinels);
        } else {
            servers = config.useClusterServers()
                    .setScanInterval(SCAN_INTERVAL_MS)
                    .addNodeAddress(nodes);
        }
        // What it says of a lock is what the master says.
        servers.setReadMode(ReadMode.MASTER);
        servers.setSubscriptionMode(SubscriptionMode.MASTER);
        servers.setMasterConnectionMinimumIdleSize(1);
        servers.setSubscriptionConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }

    private static Config config(long watchdogMs) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMs);
        config.setThreads(4);
        config.setNettyThreads(4);
        return config;
    }

    private static RedissonClient client(String url, long watchdogMs, String prefix, boolean oneOfSeveral)
            throws ReflectiveOperationException {
        Config config = config(watchdogMs);
        SingleServerConfig server = config.useSingleServer();
        server.setAddress(url);
        server.setConnectionMinimumIdleSize(1);
        server.setSubscriptionConnectionMinimumIdleSize(1);
        if (oneOfSeveral) {
            // A red lock asks its servers one after the other: what a dead one costs is paid each time.
            server.setRetryAttempts(0);
            server.setTimeout(1_500);
        }
        if (!prefix.isEmpty()) {
            setPrefix(server, prefix);
        }
        for (int attempt = 1; ; attempt++) {
            try {
                return Redisson.create(config);
            } catch (RedisConnectionException e) {
                // The server is there. A busy machine may keep this process waiting for longer than that time-out.
                if (!oneOfSeveral || attempt == ATTEMPTS_TO_CONNECT) {
                    throw e;
                }
            }
        }
    }

    /** Whether a thread sleeps until a message comes: what Redisson's waiters do in the end. */
    private boolean isParked(String name) {
        return Thread.getAllStackTraces().entrySet().stream()
                .filter(thread -> thread.getKey().getThreadGroup() == group && thread.getKey().getName().equals(name))
                .flatMap(thread -> Arrays.stream(thread.getValue()))
                .anyMatch(frame -> frame.getClassName().equals("java.util.concurrent.Semaphore"));
    }

    /** Permits of both sorts, with the same verbs: {@code plain}, or {@code expirable=lease} in milliseconds, or -1. */
    private Permits permits(String[] args) {
        String name = name(args[1]);
        if (args[0].equals("plain")) {
            return new Permits.Plain(redisson.getSemaphore(name));
        }
        return new Permits.Expirable(redisson.getPermitExpirableSemaphore(name), number(args[0].split("=")[1]));
    }

    /** Each thread takes a permit some times: when it was had, and until when, of each turn. */
    private String permitTurns(String[] args, int threads, int turns) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Future<String>> runners = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                runners.add(pool.submit(() -> {
                    Permits permits = permits(args);
                    StringBuilder record = new StringBuilder();
                    for (int turn = 0; turn < turns; turn++) {
                        String id = permits.acquire();
                        long from = now();
                        Thread.sleep(2);
                        record.append(from).append('-').append(now()).append(' ');
                        permits.release(id);
                    }
                    return record.toString();
                }));
            }
            StringBuilder all = new StringBuilder();
            for (Future<String> runner : runners) {
                all.append(runner.get());
            }
            return all.toString().trim();
        } finally {
            pool.shutdown();
        }
    }

    @SuppressWarnings("deprecation") // RedissonRedLock
    private RLock lock(String[] args) {
        if (args[0].equals("several")) {
            Stream<String> names = Arrays.stream(args[1].split(",")).map(Helper::name);
            return new RedissonMultiLock(names.map(redisson::getLock).toArray(RLock[]::new));
        }
        String name = name(args[1]);
        switch (args[0]) {
            case "plain":
                return redisson.getLock(name);
            case "fenced":
                return redisson.getFencedLock(name);
            case "spin":
                return redisson.getSpinLock(name);
            case "fair":
                return redisson.getFairLock(name);
            case "read":
                return redisson.getReadWriteLock(name).readLock();
            case "write":
                return redisson.getReadWriteLock(name).writeLock();
            case "red":
                return new RedissonRedLock(onEach(name));
            case "multi":
                return new RedissonMultiLock(onEach(name));
            default:
                throw new IllegalArgumentException("not a kind of lock: " + args[0]);
        }
    }

    private RLock[] onEach(String name) {
        return clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new);
    }

    private RFencedLock fenced(String[] args) {
        return (RFencedLock) lock(args);
    }

    /** Of a queue: {@code text} or {@code bytes}. */
    private static Codec codec(String word) {
        return word.equals("text") ? StringCodec.INSTANCE : ByteArrayCodec.INSTANCE;
    }

    private static Object item(String codec, String hex) {
        return codec.equals("text") ? name(hex) : HexFormat.of().parseHex(hex);
    }

    /** An item in hexadecimal digits, behind an {@code x}, or {@code nothing}. */
    private static String shown(Object item) {
        if (item == null) {
            return "nothing";
        }
        byte[] bytes = item instanceof byte[] ? (byte[]) item : item.toString().getBytes(StandardCharsets.UTF_8);
        return "x" + HexFormat.of().formatHex(bytes);
    }

    private static String name(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static long number(String word) {
        return Long.parseLong(word);
    }

    private static int bit(boolean value) {
        return value ? 1 : 0;
    }

    private static long now() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    /** Every name of the program gets a prefix in Redis. The type moved between versions, so it is not named here. */
    private static void setPrefix(SingleServerConfig server, String prefix) throws ReflectiveOperationException {
        for (Method method : server.getClass().getMethods()) {
            if (method.getName().equals("setNameMapper") && method.getParameterCount() == 1) {
                Class<?> type = method.getParameterTypes()[0];
                Object mapper = Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
                        (proxy, called, args) -> {
                            String name = (String) args[0];
                            return called.getName().equals("map") ? prefix + name : name.substring(prefix.length());
                        });
                method.invoke(server, mapper);
                return;
            }
        }
        throw new NoSuchMethodException("setNameMapper");
    }
}
