package dev.tollgate;

import static dev.tollgate.Library.check;
import static dev.tollgate.Library.counted;
import static dev.tollgate.Library.milliseconds;
import static dev.tollgate.Library.text;
import static dev.tollgate.Library.unexpected;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/**
 * An agent: limits how often, and how many at a time, a tenant may use a resource, across a whole fleet, decided in this
 * process. It is the agent's C library (agent/c), called by the JDK's own foreign functions: Java 22 or later, nothing
 * else. The library is {@code libtollgate_c.so.0} where the linker finds it, or the file that the property
 * {@code tollgate.library} names; run with {@code --enable-native-access=ALL-UNNAMED}.
 *
 * <pre>{@code
 * Tollgate agent = Tollgate.open("aggregators=127.0.0.1:7401");
 * Tollgate.Rate search = agent.rate("api.search");
 * Tollgate.Denied denied = search.hit("acme");        // null: go on
 * if (denied != null) { respond(denied.status(), denied.headers(), denied.body()); }
 * }</pre>
 *
 * <p>Only {@code open}, {@code ready} and {@code close} wait; any thread may make any call. After a mistake of the
 * caller, like a handle that was freed, a call may proceed: limits never break a service. So may a call of the domain
 * null, as of a missing header, which uses up no limit ({@link #undecided}). Only a negative number of copies is an
 * {@code IllegalArgumentException}.
 */
public final class Tollgate implements AutoCloseable {
    /** The answer to a call that was refused. {@code retryAfter} is empty if the refusal does not end by itself. */
    public record Denied(
            int status, Optional<Duration> retryAfter, String code, Map<String, String> headers, String body) {}

    /** Why so many copies of a hold should be given up. */
    public record Revoked(Reason reason, int copies) {}

    /** Why copies of a hold should be given up. */
    public enum Reason {
        /** They were too many, and the resource asks for them back ({@code on_excess = "give-back"}): release them. */
        TOO_MANY,
        /**
         * The hold reached its greatest age ({@code max_age}), an operator ended it, or the agent was closed. The
         * copies do not count any more, and others may have got them: stop using them, and close the hold.
         */
        ENDED,
        /** No aggregator counts the hold, for instance for want of room; a service may go on. */
        UNCOUNTED
    }

    /** An agent's counters: see {@code tg_counts} in tollgate.h. */
    public record Stats(
            long hitsAccepted,
            long hitsDropped,
            long hitsAcknowledged,
            long refusedAccepted,
            long denialsLive,
            long holdsLive,
            Duration blindFor) {}

    /** Invalid settings, a name with a NUL, or a handle that is not open. */
    public static final class TollgateException extends RuntimeException {
        private static final long serialVersionUID = 1;

        TollgateException(String message) {
            super(message);
        }
    }

    private static final int DENIED = 1;
    private static final int NOT_YET = 2;
    private static final int GIVE_BACK = 3;
    private static final int ENDED = 4;
    private static final int NOT_OPEN = -3;

    /** The offsets of the fields of {@code tg_answer}, and its size. */
    private static final int STATUS = 8;
    private static final int RETRY_AFTER_MS = 16;
    private static final int DENIAL = 32;
    private static final int HEADERS = 96;
    private static final int BODY = 608;
    private static final int ANSWER_BYTES = 1376;

    /** The fields of {@code tg_counts}, of eight bytes each. */
    private static final int COUNTS = 9;

    /** A thread's memory for answers and handles, as longs, so that both are aligned. */
    private static final class Scratch {
        final MemorySegment answer = MemorySegment.ofArray(new long[ANSWER_BYTES / 8]);
        final MemorySegment handle = MemorySegment.ofArray(new long[1]);
    }

    private static final ThreadLocal<Scratch> SCRATCH = ThreadLocal.withInitial(Scratch::new);

    private static final LongAdder UNDECIDED = new LongAdder();

    private final long handle;

    private Tollgate(long handle) {
        this.handle = handle;
    }

    /**
     * An agent with the settings that tollgate.h lists, with {@code ;} between them. Fails on invalid settings, never
     * because of the network.
     */
    public static Tollgate open(String settings) {
        try (Arena arena = Arena.ofConfined()) {
            return opened(arena, text(arena, settings));
        }
    }

    /** An agent with settings from the environment: TOLLGATE_AGGREGATORS and the other variables of the guide. */
    public static Tollgate fromEnv() {
        try (Arena arena = Arena.ofConfined()) {
            return opened(arena, MemorySegment.NULL);
        }
    }

    private static Tollgate opened(Arena arena, MemorySegment settings) {
        MemorySegment agent = arena.allocate(JAVA_LONG);
        try {
            int abi = (int) Library.ABI_OF.invokeExact();
            if (abi != Library.ABI) {
                throw new TollgateException("the library's ABI is " + abi + ", expected " + Library.ABI);
            }
            check((int) Library.OPEN.invokeExact(settings, agent));
            return new Tollgate(agent.get(JAVA_LONG, 0));
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    /**
     * Waits until the agent has received everything in force. Returns whether it has. Take the rates and copies before:
     * an agent learns a resource's limits once its handle was taken, and lets calls through before.
     */
    public boolean ready(Duration timeout) {
        try {
            return (int) Library.READY.invokeExact(handle, milliseconds(timeout)) == 0;
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    /** The agent's counters. */
    public Stats stats() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment counts = arena.allocate(JAVA_LONG, COUNTS);
            check((int) Library.STATS.invokeExact(handle, counts));
            long[] of = counts.toArray(JAVA_LONG);
            return new Stats(of[0], of[1], of[2], of[3], of[4], of[5], Duration.ofMillis(of[6]));
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    /**
     * One of the counters that tell why an agent applies no limits, by its name, like {@code connections_refused}: see
     * {@code tg_count} in tollgate.h.
     */
    public long count(String name) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment count = arena.allocate(JAVA_LONG);
            check((int) Library.COUNT.invokeExact(handle, text(arena, name), count));
            return count.get(JAVA_LONG, 0);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    /** How many calls of this process were let through because their domain was null. */
    public static long undecided() {
        return UNDECIDED.sum();
    }

    private static boolean isUndecided(String domain) {
        if (domain == null) {
            UNDECIDED.increment();
        }
        return domain == null;
    }

    /**
     * Sends what was recorded, for at most this long, and ends the agent. Its handles then let calls through. Returns
     * whether everything was sent. Close an agent before the process ends: calls that were not yet sent are lost with
     * it.
     */
    public boolean close(Duration timeout) {
        try {
            int code = (int) Library.CLOSE.invokeExact(handle, milliseconds(timeout));
            if (code != NOT_OPEN) {
                check(code);
            }
            return code != NOT_YET;
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    /** The same, for at most two seconds. */
    @Override
    public void close() {
        close(Duration.ofSeconds(2));
    }

    /** A resource that is limited by rate. Take one at the start and keep it. */
    public Rate rate(String resource) {
        return new Rate(resourceOf(Library.RATE, resource));
    }

    /** A resource that is limited by copies. */
    public Copies copies(String resource) {
        return new Copies(resourceOf(Library.COPIES, resource));
    }

    private long resourceOf(MethodHandle open, String resource) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment opened = arena.allocate(JAVA_LONG);
            check((int) open.invokeExact(handle, text(arena, resource), opened));
            return opened.get(JAVA_LONG, 0);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    /** A resource that is limited by rate. */
    public static final class Rate {
        private final long handle;

        private Rate(long handle) {
            this.handle = handle;
        }

        /** Counts a call of a domain. Null means that it may proceed. */
        public Denied hit(String domain) {
            if (isUndecided(domain)) {
                return null;
            }
            byte[] text = domain.getBytes(StandardCharsets.UTF_8);
            MemorySegment answer = SCRATCH.get().answer;
            try {
                int code = (int)
                        Library.HIT.invokeExact(handle, MemorySegment.ofArray(text), (long) text.length, answer);
                return code == DENIED ? denied(answer) : null;
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }

        /** Counts a call that costs this many copies, all or nothing. Null means that it may proceed. */
        public Denied hit(String domain, int copies) {
            if (isUndecided(domain)) {
                return null;
            }
            byte[] text = domain.getBytes(StandardCharsets.UTF_8);
            MemorySegment answer = SCRATCH.get().answer;
            try {
                int code = (int) Library.HIT_N.invokeExact(
                        handle, MemorySegment.ofArray(text), (long) text.length, counted(copies), answer);
                return code == DENIED ? denied(answer) : null;
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }

        /** What hit would return; counts nothing. */
        public Denied peek(String domain) {
            if (isUndecided(domain)) {
                return null;
            }
            byte[] text = domain.getBytes(StandardCharsets.UTF_8);
            MemorySegment answer = SCRATCH.get().answer;
            try {
                int code = (int)
                        Library.PEEK.invokeExact(handle, MemorySegment.ofArray(text), (long) text.length, answer);
                return code == DENIED ? denied(answer) : null;
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }

        /** Counts copies that were already used, whatever the limits are. */
        public void record(String domain, int copies) {
            if (isUndecided(domain)) {
                return;
            }
            byte[] text = domain.getBytes(StandardCharsets.UTF_8);
            try {
                int code = (int)
                        Library.RECORD.invokeExact(
                                handle, MemorySegment.ofArray(text), (long) text.length, counted(copies));
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }

        /** Counts a call whose cost is known only afterwards: settle the returned estimate, refused or not. */
        public Estimate hitEstimated(String domain, int copies) {
            if (isUndecided(domain)) {
                return new Estimate(0, null);
            }
            byte[] text = domain.getBytes(StandardCharsets.UTF_8);
            Scratch scratch = SCRATCH.get();
            try {
                int code = (int) Library.HIT_ESTIMATED.invokeExact(
                        handle,
                        MemorySegment.ofArray(text),
                        (long) text.length,
                        counted(copies),
                        scratch.handle,
                        scratch.answer);
                long estimate = code == 0 ? scratch.handle.get(JAVA_LONG, 0) : 0;
                return new Estimate(estimate, code == DENIED ? denied(scratch.answer) : null);
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }

        /** Frees the handle: calls are let through from then on. */
        public void free() {
            Tollgate.free(handle);
        }
    }

    /** A call whose cost is known only afterwards. */
    public static final class Estimate {
        private final AtomicLong handle;
        private final Denied denied;

        private Estimate(long handle, Denied denied) {
            this.handle = new AtomicLong(handle);
            this.denied = denied;
        }

        /** The answer if the call was refused; otherwise null. */
        public Denied denied() {
            return denied;
        }

        /** States the actual cost, once: a second call does nothing. Returns whether it was within ten minutes. */
        public boolean settle(int copies) {
            int actual = counted(copies);
            try {
                return (int) Library.SETTLE.invokeExact(handle.getAndSet(0), actual) == 0;
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }
    }

    /** A resource that is limited by copies. */
    public static final class Copies {
        private final long handle;

        private Copies(long handle) {
            this.handle = handle;
        }

        /**
         * Takes copies: close the returned hold when they are no longer used, refused or not. Copies beyond
         * {@code holds_max} are let through, and count nowhere; {@code count("holds_unrecorded")} counts such holds.
         */
        public Hold reserve(String domain, int copies) {
            if (isUndecided(domain)) {
                return new Hold(0, null);
            }
            byte[] text = domain.getBytes(StandardCharsets.UTF_8);
            Scratch scratch = SCRATCH.get();
            try {
                int code = (int) Library.RESERVE.invokeExact(
                        handle,
                        MemorySegment.ofArray(text),
                        (long) text.length,
                        counted(copies),
                        scratch.handle,
                        scratch.answer);
                long hold = code == 0 ? scratch.handle.get(JAVA_LONG, 0) : 0;
                return new Hold(hold, code == DENIED ? denied(scratch.answer) : null);
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }

        /** Frees the handle: calls are let through from then on. */
        public void free() {
            Tollgate.free(handle);
        }
    }

    /** Copies in use, for try-with-resources. */
    public static final class Hold implements AutoCloseable {
        private final AtomicLong handle;
        private final Denied denied;

        private Hold(long handle, Denied denied) {
            this.handle = new AtomicLong(handle);
            this.denied = denied;
        }

        /** The answer if the copies were refused; otherwise null. */
        public Denied denied() {
            return denied;
        }

        /**
         * Gives so many of the copies back. Returns whether it did: not if the agent knows that the hold does not count
         * any more; close it then. 0 copies, or more than the hold has, are a {@code TollgateException}. After a
         * refusal, and after {@code close}, it does nothing, and returns true.
         */
        public boolean release(int copies) {
            int some = counted(copies);
            try {
                int code = (int) Library.RELEASE_N.invokeExact(handle.get(), some);
                check(code);
                return code == 0;
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }

        /**
         * Why the hold, or some of its copies, should be given up; null if they may be kept, as after a refusal. It
         * never waits: call it between steps of the work.
         */
        public Revoked revoked() {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment copies = arena.allocate(JAVA_INT);
                int code = (int) Library.REVOKED.invokeExact(handle.get(), copies);
                if (code <= 0) {
                    return null;
                }
                Reason reason =
                        switch (code) {
                            case GIVE_BACK -> Reason.TOO_MANY;
                            case ENDED -> Reason.ENDED;
                            default -> Reason.UNCOUNTED;
                        };
                return new Revoked(reason, copies.get(JAVA_INT, 0));
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }

        /** Gives all copies back; a second call does nothing. */
        @Override
        public void close() {
            try {
                int code = (int) Library.RELEASE.invokeExact(handle.getAndSet(0));
            } catch (Throwable thrown) {
                throw unexpected(thrown);
            }
        }
    }

    private static void free(long handle) {
        try {
            int code = (int) Library.FREE.invokeExact(handle);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    private static Denied denied(MemorySegment answer) {
        long wait = answer.get(JAVA_LONG, RETRY_AFTER_MS);
        Map<String, String> headers = new LinkedHashMap<>();
        for (String line : answer.getString(HEADERS).split("\n")) {
            int colon = line.indexOf(": ");
            if (0 < colon) {
                headers.put(line.substring(0, colon), line.substring(colon + 2));
            }
        }
        return new Denied(
                answer.get(JAVA_INT, STATUS),
                // A negative value means unknown.
                wait < 0 ? Optional.empty() : Optional.of(Duration.ofMillis(wait)),
                answer.getString(DENIAL),
                headers,
                answer.getString(BODY));
    }
}
