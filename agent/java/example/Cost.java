import dev.tollgate.Tollgate;
import java.time.Duration;
import java.util.Arrays;

/** Cost ADDRESS: what a call costs, and how many were recorded, as agent/c/examples/cost.c measures it. */
final class Cost {
    private static final int DOMAINS = 1000;
    private static final int BLOCKS = 2000;
    /** Until the code is compiled. */
    private static final int WARM = 500;

    public static void main(String[] arguments) {
        try (Tollgate agent = Tollgate.open("aggregators=" + arguments[0] + "; name=cost-java")) {
            Tollgate.Rate rate = agent.rate("api.free");
            boolean heard = agent.ready(Duration.ofSeconds(5));
            String[] domains = new String[DOMAINS];
            for (int i = 0; i < DOMAINS; i++) {
                domains[i] = String.format("tenant:%08x:user:%08x", i, i * 7919);
            }
            long[] blocks = new long[WARM + BLOCKS];
            long refused = 0;
            Tollgate.Stats before = agent.stats();
            for (int block = 0; block < blocks.length; block++) {
                if (block == WARM) {
                    before = agent.stats();
                }
                long start = System.nanoTime();
                for (String domain : domains) {
                    refused += rate.hit(domain) == null ? 0 : 1;
                }
                blocks[block] = System.nanoTime() - start;
                while (System.nanoTime() - start < 1_000_000) {
                    Thread.onSpinWait();
                }
            }
            Tollgate.Stats after = agent.stats();
            long[] measured = Arrays.copyOfRange(blocks, WARM, blocks.length);
            Arrays.sort(measured);
            double accepted = 100.0 * (after.hitsAccepted() - before.hitsAccepted()) / ((double) BLOCKS * DOMAINS);
            System.out.printf(
                    "Java: %.1f ns a call (a tenth: %.1f), %.2f %% recorded, %d refused, %s%n",
                    (double) measured[BLOCKS / 2] / DOMAINS,
                    (double) measured[BLOCKS / 10] / DOMAINS,
                    accepted,
                    refused,
                    heard ? "an aggregator heard" : "nobody heard");
        }
    }
}
