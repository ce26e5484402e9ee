import dev.tollgate.Tollgate;
import java.time.Duration;
import java.util.List;

/**
 * Check ADDRESS: what Tollgate.java promises, against the aggregator at ADDRESS, which limits api.search to a few calls
 * a minute, llm.tokens to 100 a minute, jobs to 2 copies, batch to 5 of which excess is given back, and a hold of brief
 * to a second.
 */
final class Check {
    static final Duration WITHIN = Duration.ofSeconds(20);

    static void expect(boolean condition, Object said) {
        if (!condition) {
            throw new AssertionError(said);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Tollgate agent = Tollgate.open("aggregators=" + arguments[0] + "; name=java");
        expect(agent.ready(WITHIN), "no aggregator answers");
        refusals(agent);
        costs(agent);
        copies(agent);
        parts(agent);
        excess(agent, arguments[0]);
        ends(agent);
        mistakes(agent);
        threads(agent);
        expect(1 <= agent.count("welcomes"), "never welcome");
        expect(agent.close(WITHIN), "not all was sent");
        agent.close();
        System.out.println("all as promised");
    }

    static void refusals(Tollgate agent) throws InterruptedException {
        Tollgate.Rate search = agent.rate("api.search");
        Tollgate.Denied denied = null;
        for (int call = 0; denied == null && call < 4000; call++) {
            denied = search.hit("java");
            Thread.sleep(2);
        }
        expect(denied != null, "never refused");
        expect(denied.status() == 429, denied);
        Duration wait = denied.retryAfter().orElseThrow();
        expect(wait.isPositive() && wait.compareTo(Duration.ofMinutes(1)) <= 0, denied);
        for (String name : List.of("retry-after", "ratelimit", "ratelimit-policy", "content-type")) {
            expect(denied.headers().containsKey(name), denied);
        }
        expect(denied.code().equals(denied.headers().get("x-tollgate-code")), denied);
        expect(denied.body().contains("#quota-exceeded"), denied);
        expect(search.peek("java") != null && search.peek("other") == null, "a peek that is another answer");
        search.free();
    }

    static void costs(Tollgate agent) {
        Tollgate.Rate tokens = agent.rate("llm.tokens");
        agent.ready(WITHIN);
        Tollgate.Denied never = tokens.hit("java", 101);
        expect(never != null && never.retryAfter().isEmpty(), never);
        Tollgate.Estimate estimate = tokens.hitEstimated("java", 60);
        expect(estimate.denied() == null, estimate.denied());
        expect(estimate.settle(10) && estimate.settle(10), "a second time does nothing");
        expect(tokens.hitEstimated("java", 101).denied() != null, "let through");
        tokens.record("java", 5);
        tokens.free();
    }

    static void copies(Tollgate agent) throws InterruptedException {
        Tollgate.Copies jobs = agent.copies("jobs");
        agent.ready(WITHIN);
        try (Tollgate.Hold both = jobs.reserve("java", 2);
                Tollgate.Hold more = jobs.reserve("java", 1)) {
            expect(both.denied() == null, both.denied());
            expect(more.denied() != null && more.denied().status() == 429, more.denied());
        }
        long until = System.nanoTime() + WITHIN.toNanos();
        while (true) {
            try (Tollgate.Hold hold = jobs.reserve("java", 1)) {
                if (hold.denied() == null) {
                    break;
                }
                expect(System.nanoTime() < until, hold.denied());
            }
            Thread.sleep(5);
        }
        jobs.free();
    }

    static void parts(Tollgate agent) throws InterruptedException {
        Tollgate.Copies jobs = agent.copies("jobs");
        Tollgate.Hold hold = jobs.reserve("java-parts", 2);
        expect(hold.release(1) && hold.revoked() == null, hold.revoked());
        for (int copies : new int[] {0, 2}) {
            try {
                hold.release(copies);
                throw new AssertionError(copies + " copies were released");
            } catch (Tollgate.TollgateException named) {
                expect(named.getMessage().contains("copies"), named);
            }
        }
        long until = System.nanoTime() + WITHIN.toNanos();
        for (boolean refused = true; refused; Thread.sleep(5)) {
            try (Tollgate.Hold more = jobs.reserve("java-parts", 1)) {
                refused = more.denied() != null;
                expect(System.nanoTime() < until, more.denied());
            }
        }
        hold.close();
        expect(hold.release(1) && hold.revoked() == null, "a hold that was closed");
        jobs.free();
    }

    /** Two agents take three of five copies each: no denial is known, and one copy is too many. */
    static void excess(Tollgate agent, String address) throws InterruptedException {
        try (Tollgate other = Tollgate.open("aggregators=" + address + "; name=java-other")) {
            Tollgate.Copies[] batch = {agent.copies("batch"), other.copies("batch")};
            expect(agent.ready(WITHIN) && other.ready(WITHIN), "no aggregator answers");
            try (Tollgate.Hold one = batch[0].reserve("java", 3);
                    Tollgate.Hold two = batch[1].reserve("java", 3)) {
                long until = System.nanoTime() + WITHIN.toNanos();
                while (one.revoked() == null && two.revoked() == null) {
                    expect(System.nanoTime() < until, "never revoked");
                    Thread.sleep(5);
                }
                Tollgate.Hold asked = one.revoked() == null ? two : one;
                Tollgate.Revoked revoked = asked.revoked();
                expect(revoked.equals(new Tollgate.Revoked(Tollgate.Reason.TOO_MANY, 1)), revoked);
                expect(asked.release(revoked.copies()) && asked.revoked() == null, asked.revoked());
            }
            batch[0].free();
            batch[1].free();
        }
    }

    static void ends(Tollgate agent) throws InterruptedException {
        Tollgate.Copies brief = agent.copies("brief");
        agent.ready(WITHIN);
        try (Tollgate.Hold hold = brief.reserve("java", 2)) {
            long until = System.nanoTime() + WITHIN.toNanos();
            while (hold.revoked() == null) {
                expect(System.nanoTime() < until, "never revoked");
                Thread.sleep(5);
            }
            expect(hold.revoked().equals(new Tollgate.Revoked(Tollgate.Reason.ENDED, 2)), hold.revoked());
            expect(!hold.release(1), "released");
        }
        brief.free();
    }

    static void mistakes(Tollgate agent) {
        try {
            Tollgate.open("agregators=a:1");
            throw new AssertionError("opened");
        } catch (Tollgate.TollgateException named) {
            expect(named.getMessage().contains("agregators"), named);
        }
        Tollgate.Rate search = agent.rate("api.search");
        expect(search.hit("") == null, "a domain of no bytes");
        undecided(search, agent.copies("jobs"));
        Tollgate.Estimate estimate = search.hitEstimated("mistakes", 1);
        for (Runnable negative : List.<Runnable>of(
                () -> search.hit("mistakes", -1),
                () -> search.record("mistakes", -1),
                () -> search.hitEstimated("mistakes", -1),
                () -> estimate.settle(-1),
                () -> agent.copies("jobs").reserve("mistakes", -1),
                () -> agent.copies("jobs").reserve("mistakes", 1).release(-1))) {
            try {
                negative.run();
                throw new AssertionError("let through");
            } catch (IllegalArgumentException named) {
                expect(named.getMessage().startsWith("-1 copies"), named);
            }
        }
        expect(estimate.settle(1) && search.peek("mistakes") == null, "locked out");
        for (Runnable cut : List.<Runnable>of(
                () -> agent.rate("api\0.search"), () -> agent.copies("jobs\0"), () -> Tollgate.open("name=a\0b"))) {
            try {
                cut.run();
                throw new AssertionError("cut at its NUL");
            } catch (Tollgate.TollgateException named) {
                expect(named.getMessage().contains("NUL"), named);
            }
        }
        expect(agent.ready(Duration.ofSeconds(Long.MAX_VALUE)), "for as long as it takes");
        search.free();
        long failed = agent.count("calls_failed");
        expect(search.hit("java") == null, "a handle that was freed");
        expect(agent.count("calls_failed") == failed + 1, "not counted");
    }

    static void undecided(Tollgate.Rate search, Tollgate.Copies jobs) {
        long before = Tollgate.undecided();
        expect(search.hit(null) == null && search.hit(null, 7) == null && search.peek(null) == null, "no domain");
        search.record(null, 7);
        Tollgate.Estimate estimate = search.hitEstimated(null, 7);
        expect(estimate.denied() == null && estimate.settle(7), "an estimate without a domain");
        try (Tollgate.Hold hold = jobs.reserve(null, 7)) {
            expect(hold.denied() == null && hold.revoked() == null && hold.release(7), "a hold without a domain");
        }
        expect(Tollgate.undecided() == before + 6, Tollgate.undecided());
    }

    static void threads(Tollgate agent) throws InterruptedException {
        Tollgate.Rate free = agent.rate("api.free");
        Tollgate.Stats before = agent.stats();
        List<Thread> threads = java.util.stream.IntStream.range(0, 4)
                .mapToObj(number -> Thread.ofPlatform().start(() -> {
                    for (int call = 0; call < 1000; call++) {
                        free.hit("java");
                    }
                }))
                .toList();
        for (Thread thread : threads) {
            thread.join();
        }
        Tollgate.Stats after = agent.stats();
        long counted = after.hitsAccepted() + after.hitsDropped() - before.hitsAccepted() - before.hitsDropped();
        expect(counted == 4000, after);
        free.free();
    }
}
