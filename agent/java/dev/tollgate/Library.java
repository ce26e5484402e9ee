package dev.tollgate;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.time.Duration;

/**
 * The library's functions. The handles are constants of the class; otherwise a call costs a hundred times as much.
 * Those of calls that decide are critical: the thread does not change its state, and arrays are passed without a copy.
 * The garbage collector waits for such a call, so those that give handles and copies back are not critical: they wait
 * for locks, and free what an agent has.
 */
final class Library {
    static final int ABI = 0;
    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup SYMBOLS =
            SymbolLookup.libraryLookup(System.getProperty("tollgate.library", "libtollgate_c.so.0"), Arena.global());
    private static final Linker.Option SHORT = Linker.Option.critical(true);

    // int32_t tg_open(const char *settings, tg_handle *agent);
    static final MethodHandle OPEN = found("tg_open", JAVA_INT, ADDRESS, ADDRESS);
    // uint32_t tg_abi(void);
    static final MethodHandle ABI_OF = found("tg_abi", JAVA_INT);
    // size_t tg_last_error(char *buffer, size_t capacity);
    static final MethodHandle LAST_ERROR = found("tg_last_error", JAVA_LONG, ADDRESS, JAVA_LONG);
    // int32_t tg_ready(tg_handle agent, uint32_t timeout_ms);
    static final MethodHandle READY = found("tg_ready", JAVA_INT, JAVA_LONG, JAVA_INT);
    // int32_t tg_close(tg_handle agent, uint32_t timeout_ms);
    static final MethodHandle CLOSE = found("tg_close", JAVA_INT, JAVA_LONG, JAVA_INT);
    // int32_t tg_stats(tg_handle agent, tg_counts *counts);
    static final MethodHandle STATS = found("tg_stats", JAVA_INT, JAVA_LONG, ADDRESS);
    // int32_t tg_count(tg_handle agent, const char *name, uint64_t *count);
    static final MethodHandle COUNT = found("tg_count", JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS);
    // int32_t tg_rate(tg_handle agent, const char *resource, tg_handle *rate);
    static final MethodHandle RATE = found("tg_rate", JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS);
    // int32_t tg_copies(tg_handle agent, const char *resource, tg_handle *copies);
    static final MethodHandle COPIES = found("tg_copies", JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS);
    // int32_t tg_hit(tg_handle rate, const char *domain, size_t domain_len, tg_answer *answer);
    static final MethodHandle HIT = critical("tg_hit", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS);
    // int32_t tg_hit_n(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies, tg_answer *answer);
    static final MethodHandle HIT_N =
            critical("tg_hit_n", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_INT, ADDRESS);
    // int32_t tg_peek(tg_handle rate, const char *domain, size_t domain_len, tg_answer *answer);
    static final MethodHandle PEEK = critical("tg_peek", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS);
    // int32_t tg_record(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies);
    static final MethodHandle RECORD = critical("tg_record", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_INT);
    // int32_t tg_hit_estimated(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies, tg_handle *estimate, tg_answer *answer);
    static final MethodHandle HIT_ESTIMATED =
            critical("tg_hit_estimated", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS);
    // int32_t tg_settle(tg_handle estimate, uint32_t copies);
    static final MethodHandle SETTLE = critical("tg_settle", JAVA_INT, JAVA_LONG, JAVA_INT);
    // int32_t tg_reserve(tg_handle copies, const char *domain, size_t domain_len, uint32_t wanted, tg_handle *hold, tg_answer *answer);
    static final MethodHandle RESERVE =
            critical("tg_reserve", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS);
    // int32_t tg_release(tg_handle hold);
    static final MethodHandle RELEASE = found("tg_release", JAVA_INT, JAVA_LONG);
    // int32_t tg_release_n(tg_handle hold, uint32_t copies);
    static final MethodHandle RELEASE_N = found("tg_release_n", JAVA_INT, JAVA_LONG, JAVA_INT);
    // int32_t tg_revoked(tg_handle hold, uint32_t *copies);
    static final MethodHandle REVOKED = found("tg_revoked", JAVA_INT, JAVA_LONG, ADDRESS);
    // int32_t tg_free(tg_handle handle);
    static final MethodHandle FREE = found("tg_free", JAVA_INT, JAVA_LONG);

    private Library() {}

    private static MethodHandle found(String name, MemoryLayout result, MemoryLayout... arguments) {
        return LINKER.downcallHandle(SYMBOLS.find(name).orElseThrow(), FunctionDescriptor.of(result, arguments));
    }

    private static MethodHandle critical(String name, MemoryLayout result, MemoryLayout... arguments) {
        return LINKER.downcallHandle(SYMBOLS.find(name).orElseThrow(), FunctionDescriptor.of(result, arguments), SHORT);
    }

    /** The text of a code belongs to the thread, so it is read at once. */
    static void check(int code) throws Throwable {
        if (code < 0) {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment text = arena.allocate(512);
                long length = (long) Library.LAST_ERROR.invokeExact(text, text.byteSize());
                throw new Tollgate.TollgateException(length == 0 ? "code " + code : text.getString(0));
            }
        }
    }

    /** A text for C, which ends at its first NUL: another one in it would cut it. */
    static MemorySegment text(Arena arena, String text) {
        if (text.indexOf(0) != -1) {
            throw new Tollgate.TollgateException("a NUL in \"" + text.replace("\0", "\\0") + "\": expected none");
        }
        return arena.allocateFrom(text);
    }

    /** C counts copies without a sign: a negative number would be four thousand million. */
    static int counted(int copies) {
        if (copies < 0) {
            throw new IllegalArgumentException(copies + " copies: expected a number from 0 on");
        }
        return copies;
    }

    static int milliseconds(Duration timeout) {
        Duration most = Duration.ofMillis(Integer.MAX_VALUE);
        if (timeout.isNegative()) {
            return 0;
        }
        return timeout.compareTo(most) < 0 ? (int) timeout.toMillis() : Integer.MAX_VALUE;
    }

    /** The library throws nothing: an exception is from these classes, or from the virtual machine. */
    static RuntimeException unexpected(Throwable thrown) {
        if (thrown instanceof Error error) {
            throw error;
        }
        return thrown instanceof RuntimeException known ? known : new IllegalStateException(thrown);
    }
}
