/* Tollgate: rate and concurrency limits of a whole fleet, decided in this process.
 *
 * An agent decides by a list of denials in memory, and sends the calls that it let through to the aggregators
 * (`tollgate serve`) in the background. Only tg_open, tg_ready and tg_close wait. A process that ends without tg_close
 * loses the calls of its last moments: limits then count too few.
 *
 *     tg_handle agent, search;
 *     if (tg_open("aggregators=127.0.0.1:7401", &agent) != TG_OK) { ... tg_last_error ... }
 *     tg_rate(agent, "api.search", &search);
 *     tg_ready(agent, 500);        optional, after the handles were taken: with their limits from the first call on
 *
 *     tg_answer answer;
 *     if (tg_hit(search, tenant, strlen(tenant), &answer) == TG_DENIED)
 *         respond(answer.status, answer.headers, answer.body);
 *     else
 *         serve();
 *
 *     tg_close(agent, 2000);       before the process ends
 *
 * Codes. Only TG_DENIED means that a call is refused. A negative code is a mistake in the settings or in the calling
 * program; the library has not decided on the call, so let it through. tg_last_error has the text, and calls_failed
 * (tg_count) counts such codes.
 *
 * Handles are numbers; 0 means no handle. A call with a handle that was freed, never existed, or is of another kind
 * returns TG_E_HANDLE and never crashes. Handles of rates and copies stay valid after their agent is closed, let
 * everything through, and keep its memory until they are freed. Pointers are checked for null (TG_E_INVALID); the
 * caller has to make sure that they point to what is declared.
 *
 * Threads. Any thread may call all functions at any time, also with the same handle. The first call of each thread
 * allocates 512 KiB (`recorder_bytes`).
 *
 * Forks. A child of fork(2) has none of an agent's threads. In it, a handle of its parent lets every call through, with
 * TG_FORKED in the answer's flags, and counts it (tg_counts.calls_forked); tg_rate, tg_copies, tg_ready, tg_record,
 * tg_settle, tg_release, tg_release_n and tg_revoked return TG_E_FORKED (calls_failed). Open an agent in each child.
 * The parent continues as before.
 *
 * Text is UTF-8. Domains are passed with their length; the empty domain is a domain like any other. Bytes of a domain
 * that are not UTF-8 count as U+FFFD, as everywhere in Tollgate, and a domain above 1 MiB counts as its first MiB: a
 * client that may choose the bytes gets no call free.
 *
 * Signals. The agent's threads block SIGPIPE, so that a connection which an aggregator closes does not end the host.
 */
#ifndef TOLLGATE_H
#define TOLLGATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increased with each change that breaks programs built before it; tg_abi() returns the library's. */
#define TG_ABI 0

#define TG_OK 0      /* carried out; for a decision: let through */
#define TG_ALLOWED 0 /* the same */
#define TG_DENIED 1  /* refused */
#define TG_NOT_YET 2 /* tg_ready, tg_close: not within the given time */

/* Of holds: tg_revoked, tg_release_n. */
#define TG_GIVE_BACK 3 /* some of the copies were too many, and the resource has `on_excess = "give-back"` */
#define TG_ENDED 4     /* the hold has ended: by its greatest age (`max_age`), an operator, or the end of the agent */
#define TG_UNCOUNTED 5 /* no aggregator counts the hold, for instance because it has no room for another one */

#define TG_E_INVALID (-1)  /* a null pointer, 0 copies or too many, a call that does not fit the resource */
#define TG_E_UTF8 (-2)     /* a text, other than a domain, that is not UTF-8 */
#define TG_E_HANDLE (-3)   /* a handle that is not open, or of another kind */
#define TG_E_SETTINGS (-4) /* invalid settings, or files that cannot be read */
#define TG_E_FULL (-5)     /* 1,048,576 handles are open */
#define TG_E_LATE (-6)     /* settled ten minutes after the call, or later */
#define TG_E_FORKED (-7)   /* a handle of this process's parent */
#define TG_E_PANIC (-8)    /* a fault of the library */

/* Flags of an answer. */
#define TG_BLIND 1u   /* decided without the aggregators: nothing current was received for a minute (copies: 2 s) */
#define TG_NEAR 2u    /* near a limit: `remaining` is known */
#define TG_FORKED 4u  /* let through: the handle belongs to this process's parent */
#define TG_NEVER 8u   /* more at once than can ever be granted (`remaining`): asking again does not help */
#define TG_UNHELD 16u /* let through without room: copies count nowhere, hits are counted and cannot be settled */

/* An unknown value. */
#define TG_UNKNOWN UINT64_MAX

typedef uint64_t tg_handle;

/* An answer. The call overwrites it completely; texts end with a NUL and are empty if unknown. */
typedef struct tg_answer {
    int32_t code;            /* the call's return value */
    uint32_t flags;          /* TG_BLIND ... */
    uint32_t status;         /* for HTTP: 200, 429, or 503 without aggregators and with `blind = "closed"` */
    uint32_t copies;         /* granted */
    uint64_t retry_after_ms; /* after a refusal; TG_UNKNOWN if it does not end by itself */
    uint64_t remaining;      /* copies that are left, or TG_UNKNOWN */
    char denial[64];         /* after a refusal: the code for `tollgate explain` */
    char headers[512];       /* after a refusal, or near a limit: `name: value` and a line feed for each; without room
                              * for all, the longest are left out */
    char body[768];          /* after a refusal: application/problem+json */
} tg_answer;

/* What an agent has counted since it was opened. */
typedef struct tg_counts {
    uint64_t hits_accepted;     /* calls that were let through and recorded */
    uint64_t hits_dropped;      /* calls that were let through, their record dropped at a bound on memory */
    uint64_t hits_acknowledged; /* calls that were let through and acknowledged by the log */
    uint64_t refused_accepted;  /* calls that were refused and recorded */
    uint64_t denials_live;      /* denials in force */
    uint64_t holds_live;        /* holds that the agent tracks */
    uint64_t blind_for_ms;      /* how long the denials of some partition have not held any more, which begins a minute
                                   after an aggregator went away (of copies: two seconds); 0: all hold */
    uint64_t calls_forked;      /* of this process: calls let through because the handle belongs to its parent */
    uint64_t handles_live;      /* of this process: handles that are open */
} tg_counts;

/* The library's version, and its TG_ABI. */
const char *tg_version(void);
uint32_t tg_abi(void);

/* Writes the text of this thread's last negative code, cut to `capacity` bytes with a NUL; returns its length.
 * Successful calls do not change the text. */
size_t tg_last_error(char *buffer, size_t capacity);

/* Opens an agent. It connects in the background: an unreachable aggregator is not an error. Settings are `name=value`,
 * with `;` or line feeds between them; null takes those of the environment (TOLLGATE_AGGREGATORS and the others of the
 * guide), "" the defaults. Names:
 *
 *   aggregators          host:port, several separated by commas; default 127.0.0.1:7401
 *   name                 the agent's name; default: host and process
 *   domain_key_file      domains leave this process as keyed hashes
 *   epoch_file           the file by which this agent's successor gives its copies back
 *   kill_switch          on: denials are ignored
 *   flush_relaxed_ms     how long calls far from limits wait to be sent; default 60
 *   tls_ca_file          the CAs that may have issued the aggregators' certificate, or `system`; aggregators on other
 *                        machines need it
 *   tls_server_name      the name in that certificate, at every address; default: the host of the first aggregator
 *   tls_cert_file        the agent's own certificate, for aggregators that accept it in place of a token
 *   tls_key_file         its key
 *   token_file           the agent's token; no other user may read it
 *   insecure             trusted-network: other machines are reached without TLS
 *   log                  stderr: the agent's warnings are printed; default off; TOLLGATE_AGENT_LOG of the environment
 *   kafka                host:port; if the library was built with Kafka
 *   kafka_topic_prefix   default tollgate
 *   kafka_properties_file   NAME=VALUE of librdkafka, one a line
 *   denials_max          default 1048576, 10 bytes each
 *   resources_max        default 10000
 *   threads_max          default 1024; calls of further threads are decided, and not recorded
 *   holds_max            default 262144; copies beyond it are let through with TG_UNHELD
 *   recorder_bytes       for each thread; default 524288
 *   queue_bytes          default 16777216
 */
int32_t tg_open(const char *settings, tg_handle *agent);

/* Waits until the agent has received everything in force, so that it does not start blind: TG_OK or TG_NOT_YET. Take
 * the handles of all resources before: an agent learns a resource's limits once its handle was taken. Before it knows
 * them it lets calls through, also those that can never be granted (TG_NEVER), and tg_reserve on a resource with
 * `reserve = "strict"`. */
int32_t tg_ready(tg_handle agent, uint32_t timeout_ms);

/* In the child of a fork, all counts of a parent's agent are 0 except calls_forked and handles_live. */
int32_t tg_stats(tg_handle agent, tg_counts *counts);

/* One of the agent's counters; of a parent's agent, in the child of a fork, all but calls_failed are 0. If an agent
 * applies no limits, these tell why:
 *
 *   connections_refused  failed because of TLS or tokens: an aggregator with TLS and no tls_ca_file here, an invalid
 *                        certificate, a token that is not accepted, another machine without TLS
 *   connections_ended    closed by the agent because of what it received: not an aggregator, or of another version
 *   names_not_resolved   not tried, because the host's name has no address
 *   links_lost           lost, or ended by the aggregator
 *   welcomes             accepted by an aggregator; 0: none was ever reached
 *   feeds_opened         of feeds; 0 although there are welcomes: the feed's address cannot be reached
 *   holds_unrecorded     let through with TG_UNHELD: holds beyond holds_max, or after the agent's end
 *   calls_failed         of this process: calls that returned a negative code; a hit among them was let through
 *
 * tg_open succeeds in all these cases, since a service has to start without aggregators: watch connections_refused and
 * tg_counts.blind_for_ms, and set `log=stderr` for the reasons. */
int32_t tg_count(tg_handle agent, const char *name, uint64_t *count);

/* Sends what is recorded, for at most this long, and ends the agent. Call it before the process ends: calls that were
 * not yet sent are lost with the process, be it by exit or by a return from main. Returns TG_NOT_YET if calls went
 * unsent, for instance because no aggregator is reached; hits_accepted less hits_acknowledged of tg_stats, called just
 * before, is how many were still to be sent. */
int32_t tg_close(tg_handle agent, uint32_t timeout_ms);

/* A resource that is limited by rate, or by copies. Take one at the start, before tg_ready, and keep it. */
int32_t tg_rate(tg_handle agent, const char *resource, tg_handle *rate);
int32_t tg_copies(tg_handle agent, const char *resource, tg_handle *copies);

/* May a hit of the domain proceed? `answer` may be null. */
int32_t tg_hit(tg_handle rate, const char *domain, size_t domain_len, tg_answer *answer);

/* The same for a call that costs `copies`, all or nothing. */
int32_t tg_hit_n(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies, tg_answer *answer);

/* What tg_hit would return; counts nothing. */
int32_t tg_peek(tg_handle rate, const char *domain, size_t domain_len, tg_answer *answer);

/* Counts copies that were already used, whatever the limits are; 0 copies count nothing. It does not look at limits:
 * for a resource that is limited by copies it returns TG_OK, and the record is dropped. */
int32_t tg_record(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies);

/* A call whose cost is known only afterwards: `copies` are counted now, and corrected by tg_settle, which frees the
 * handle. If the handle is freed otherwise, the count stays. After a refusal, or a fault, *estimate is 0. */
int32_t tg_hit_estimated(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies, tg_handle *estimate,
                         tg_answer *answer);
int32_t tg_settle(tg_handle estimate, uint32_t copies);

/* Takes copies for as long as they are in use; tg_release gives them back, and frees the handle. After a refusal, or a
 * fault, *hold is 0. With TG_UNHELD in the answer's flags no aggregator counts the copies; release that hold, too. For
 * a resource whose copies are granted before use (`reserve = "strict"`) this returns TG_E_INVALID once its limits are
 * known (see tg_ready): no call here waits for a grant. */
int32_t tg_reserve(tg_handle copies, const char *domain, size_t domain_len, uint32_t wanted, tg_handle *hold,
                   tg_answer *answer);
int32_t tg_release(tg_handle hold);

/* Gives so many of the hold's copies back; the handle stays open, also with no copies left. TG_E_INVALID for 0 copies,
 * and for more than the hold has. TG_ENDED or TG_UNCOUNTED if the agent knows that the hold does not count any more:
 * nothing has changed then; tg_release it. After tg_close, which gave all back, TG_OK. */
int32_t tg_release_n(tg_handle hold, uint32_t copies);

/* Should the holder give up the hold, or some of its copies? It never waits: call it between steps of the work, for
 * instance once a second.
 *
 *   TG_OK          no; *copies is 0. Always so for a hold with TG_UNHELD, and for one without copies
 *   TG_GIVE_BACK   *copies of them: tg_release_n(hold, *copies)
 *   TG_ENDED       *copies, all of them, do not count any more, and others may have got them: stop, and tg_release
 *   TG_UNCOUNTED   *copies, all of them: no aggregator counts them, so that others may get as many; a service may go on
 */
int32_t tg_revoked(tg_handle hold, uint32_t *copies);

/* Frees the handle of a rate, of copies, of a hold (and gives its copies back), or of an estimate (whose count stays).
 * tg_settle, tg_release, tg_release_n, tg_revoked and tg_free return TG_OK for 0, and do nothing. */
int32_t tg_free(tg_handle handle);

#ifdef __cplusplus
}
#endif

#endif
