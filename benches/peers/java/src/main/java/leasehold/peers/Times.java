package leasehold.peers;

import java.util.Arrays;
import java.util.List;

/** What takes how long in a window. */
final class Times {
    private final Window window;
    private long lastAt = System.nanoTime();
    private long count;
    private double[] nanos = new double[1024];
    private int noted;

    Times(Window window) {
        this.window = window;
    }

    boolean goOn() {
        return lastAt < window.until();
    }

    /** Something was done so many times since the last note. */
    void note(int times) {
        long now = System.nanoTime();
        if (window.contains(lastAt)) {
            if (noted == nanos.length) {
                nanos = Arrays.copyOf(nanos, 2 * noted);
            }
            nanos[noted++] = (double) (now - lastAt) / times;
            count += times;
        }
        lastAt = now;
    }

    /** How often it was done, and how long the middle one took. */
    List<Double> figures() {
        double[] sorted = Arrays.copyOf(nanos, noted);
        Arrays.sort(sorted);
        return List.of((double) count, noted == 0 ? Double.NaN : sorted[noted / 2]);
    }
}
