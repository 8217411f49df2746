package leasehold.interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;

import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;

/**
 * Threads that draw turns from a total in a file, which nothing but the lock protects; the same as {@code stampede.rs}.
 *
 * <p>The file: turns taken, 1 while somebody is inside, then one number for each turn; 64 bits each, big-endian.
 */
final class Stampede {
    private final RLock lock;
    private final Path file;
    private final long total;
    /** Written for a turn where the lock has no tokens. */
    private final long mark;
    private final AtomicLong turns = new AtomicLong();
    private final AtomicLong overlaps = new AtomicLong();
    /** They take no turns, but look whether nobody takes one meanwhile. */
    private final boolean looks;

    Stampede(RLock lock, String file, long total, long mark, boolean looks) {
        this.lock = lock;
        this.file = Path.of(file);
        this.total = total;
        this.mark = mark;
        this.looks = looks;
    }

    /** The turns made, and how often another was inside. */
    String run(int threads) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Callable<Void>> runners = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                runners.add(this::takeTurns);
            }
            for (Future<Void> runner : pool.invokeAll(runners)) {
                runner.get();
            }
        } finally {
            pool.shutdown();
        }
        return turns + " " + overlaps;
    }

    private Void takeTurns() throws IOException, InterruptedException {
        try (FileChannel record = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            boolean more = true;
            while (more) {
                long token = mark;
                if (lock instanceof RFencedLock) {
                    token = ((RFencedLock) lock).lockAndGetToken();
                } else {
                    lock.lock();
                }
                try {
                    more = looks ? look(record) : takeTurn(record, token);
                } finally {
                    lock.unlock();
                }
                if (looks) {
                    // Readers that overlap without an end keep all of Redisson's writers out.
                    Thread.sleep(3);
                }
            }
        }
        return null;
    }

    private boolean takeTurn(FileChannel record, long token) throws IOException {
        long taken = read(record, 0);
        if (taken >= total) {
            return false;
        }
        if (read(record, 8) != 0) {
            overlaps.incrementAndGet();
        }
        write(record, 8, 1);
        Thread.yield();
        write(record, 16 + 8 * taken, token);
        write(record, 0, taken + 1);
        write(record, 8, 0);
        turns.incrementAndGet();
        return true;
    }

    private boolean look(FileChannel record) throws IOException {
        long taken = read(record, 0);
        boolean alone = read(record, 8) == 0;
        Thread.yield();
        if (!alone || read(record, 8) != 0 || read(record, 0) != taken) {
            overlaps.incrementAndGet();
        }
        turns.incrementAndGet();
        return taken < total;
    }

    private static long read(FileChannel record, long at) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(Long.BYTES);
        while (buffer.hasRemaining()) {
            if (record.read(buffer, at + buffer.position()) < 0) {
                throw new IOException("the record is too short");
            }
        }
        return buffer.getLong(0);
    }

    private static void write(FileChannel record, long at, long value) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(Long.BYTES).putLong(0, value);
        while (buffer.hasRemaining()) {
            record.write(buffer, at + buffer.position());
        }
    }
}
