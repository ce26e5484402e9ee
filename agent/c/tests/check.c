/* check ADDRESS [SETTINGS]: what tollgate.h promises, against the aggregator at ADDRESS, which needs these further
 * settings. Reports broken promises and exits with 1.
 *
 * The aggregator limits api.search to a few calls a minute, llm.tokens to 100 a minute, jobs to 2 copies, batch to 5 of
 * which excess is given back, and a hold of brief to a second.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tollgate.h>

_Static_assert(sizeof(tg_answer) == 1376, "as in src/answers.rs");
_Static_assert(offsetof(tg_answer, retry_after_ms) == 16, "as in src/answers.rs");
_Static_assert(offsetof(tg_answer, denial) == 32, "as in src/answers.rs");
_Static_assert(offsetof(tg_answer, headers) == 96, "as in src/answers.rs");
_Static_assert(offsetof(tg_answer, body) == 608, "as in src/answers.rs");
_Static_assert(sizeof(tg_counts) == 72, "as in src/answers.rs");

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            char text[256];                                                                                            \
            tg_last_error(text, sizeof text);                                                                          \
            fprintf(stderr, "check.c:%d: not so: %s (last error: %s)\n", __LINE__, #condition, text);                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { CALLS_MAX = 4000 };

static const char *address, *further = "";

static void pause_ms(long ms) {
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&span, NULL);
}

static tg_handle opened(const char *name) {
    char settings[1024];
    tg_handle agent;
    snprintf(settings, sizeof settings, "aggregators=%s\nname=%s\n%s", address, name, further);
    EXPECT(tg_open(settings, &agent) == TG_OK);
    EXPECT(tg_ready(agent, 20000) == TG_OK);
    return agent;
}

static tg_handle rate_of(tg_handle agent, const char *resource) {
    tg_handle rate;
    EXPECT(tg_rate(agent, resource, &rate) == TG_OK);
    return rate;
}

/* Calls until one is refused. */
static void until_refused(tg_handle rate, const char *domain, tg_answer *answer) {
    for (int call = 0; call < CALLS_MAX; call++) {
        memset(answer, 0x5a, sizeof *answer);
        int code = tg_hit(rate, domain, strlen(domain), answer);
        EXPECT(code == answer->code);
        if (code == TG_DENIED) {
            return;
        }
        EXPECT(code == TG_ALLOWED && answer->status == 200 && answer->copies == 1);
        EXPECT(answer->denial[0] == 0 && answer->body[0] == 0);
        pause_ms(2);
    }
    EXPECT(!"refused");
}

static void a_refusal_has_everything_for_an_answer(tg_handle agent) {
    tg_handle search = rate_of(agent, "api.search");
    tg_answer answer, peeked;
    until_refused(search, "acme", &answer);
    EXPECT(answer.status == 429);
    EXPECT(0 < answer.retry_after_ms && answer.retry_after_ms <= 60000);
    EXPECT(answer.remaining == 0);
    EXPECT(strchr(answer.denial, '-') != NULL);
    EXPECT(strncmp(answer.headers, "retry-after: ", 13) == 0);
    EXPECT(strstr(answer.headers, "\nratelimit-policy: \"") != NULL);
    EXPECT(strstr(answer.headers, "\nx-tollgate-code: ") != NULL);
    EXPECT(strstr(answer.headers, answer.denial) != NULL);
    EXPECT(strstr(answer.headers, "\ncontent-type: application/problem+json\n") != NULL);
    EXPECT(strstr(answer.body, "#quota-exceeded") != NULL);
    EXPECT(tg_peek(search, "acme", 4, &peeked) == TG_DENIED);
    EXPECT(tg_peek(search, "other", 5, &peeked) == TG_ALLOWED);
    EXPECT(tg_hit(search, "acme", 4, NULL) == TG_DENIED);
    EXPECT(tg_free(search) == TG_OK);
}

static void bytes_that_are_not_utf8_are_limited(tg_handle agent) {
    tg_handle search = rate_of(agent, "api.search");
    tg_answer answer;
    until_refused(search, "ac\xffme", &answer);
    EXPECT(tg_peek(search, "ac\xef\xbf\xbdme", 7, &answer) == TG_DENIED);
    EXPECT(tg_record(search, "\xff", 1, 1) == TG_OK);
    EXPECT(tg_free(search) == TG_OK);
}

static void more_than_can_be_granted_is_refused_for_good(tg_handle agent) {
    tg_handle tokens = rate_of(agent, "llm.tokens");
    tg_handle estimate = 7;
    tg_answer answer;
    EXPECT(tg_ready(agent, 20000) == TG_OK);
    EXPECT(tg_hit_n(tokens, "acme", 4, 101, &answer) == TG_DENIED);
    EXPECT((answer.flags & TG_NEVER) && answer.remaining == 100 && answer.retry_after_ms == TG_UNKNOWN);
    EXPECT(tg_hit_n(tokens, "acme", 4, 0, &answer) == TG_E_INVALID);
    EXPECT(answer.code == TG_E_INVALID && answer.status == 200);
    EXPECT(tg_hit_estimated(tokens, "acme", 4, 101, &estimate, &answer) == TG_DENIED && estimate == 0);
    EXPECT(tg_hit_estimated(tokens, "acme", 4, 60, &estimate, &answer) == TG_ALLOWED && estimate != 0);
    EXPECT(tg_settle(estimate, 10) == TG_OK);
    EXPECT(tg_settle(estimate, 10) == TG_E_HANDLE);
    EXPECT(tg_record(tokens, "acme", 4, 5) == TG_OK && tg_record(tokens, "acme", 4, 0) == TG_OK);
    EXPECT(tg_free(tokens) == TG_OK);
}

static void failed_calls_are_counted(tg_handle agent) {
    uint64_t before, after;
    EXPECT(tg_count(agent, "calls_failed", &before) == TG_OK);
    EXPECT(tg_hit(0, "acme", 4, NULL) == TG_E_HANDLE && tg_record(agent, "acme", 4, 1) == TG_E_HANDLE);
    EXPECT(tg_count(agent, "calls_failed", &after) == TG_OK && after == before + 2);
}

static void copies_are_taken_and_given_back(tg_handle agent) {
    tg_handle jobs, held[2], more = 7;
    tg_answer answer;
    EXPECT(tg_copies(agent, "jobs", &jobs) == TG_OK);
    EXPECT(tg_ready(agent, 20000) == TG_OK);
    EXPECT(tg_reserve(jobs, "acme", 4, 1, &held[0], &answer) == TG_ALLOWED && answer.copies == 1);
    EXPECT(tg_reserve(jobs, "acme", 4, 1, &held[1], NULL) == TG_ALLOWED);
    EXPECT(tg_reserve(jobs, "acme", 4, 1, &more, &answer) == TG_DENIED && more == 0);
    EXPECT(answer.status == 429 && answer.body[0] == '{');
    EXPECT(tg_release(held[0]) == TG_OK && tg_release(held[0]) == TG_E_HANDLE);
    for (int call = 0; tg_reserve(jobs, "acme", 4, 1, &more, NULL) != TG_ALLOWED; call++) {
        EXPECT(call < CALLS_MAX);
        pause_ms(5);
    }
    /* A mistake of the service causes no refusal. */
    tg_handle as_rate = rate_of(agent, "jobs");
    EXPECT(tg_hit(as_rate, "other", 5, &answer) == TG_E_INVALID && answer.status == 200 && tg_free(as_rate) == TG_OK);
    EXPECT(tg_release(more) == TG_OK && tg_free(held[1]) == TG_OK && tg_free(jobs) == TG_OK);
}

static void copies_are_given_back_in_parts(tg_handle agent) {
    tg_handle jobs, hold, more;
    uint32_t copies = 7;
    EXPECT(tg_copies(agent, "jobs", &jobs) == TG_OK);
    EXPECT(tg_ready(agent, 20000) == TG_OK);
    EXPECT(tg_reserve(jobs, "parts", 5, 2, &hold, NULL) == TG_ALLOWED);
    EXPECT(tg_reserve(jobs, "parts", 5, 1, &more, NULL) == TG_DENIED);
    EXPECT(tg_release_n(hold, 3) == TG_E_INVALID && tg_release_n(hold, 0) == TG_E_INVALID);
    EXPECT(tg_release_n(hold, 1) == TG_OK && tg_release_n(hold, 2) == TG_E_INVALID);
    for (int call = 0; tg_reserve(jobs, "parts", 5, 1, &more, NULL) != TG_ALLOWED; call++) {
        EXPECT(call < CALLS_MAX);
        pause_ms(5);
    }
    EXPECT(tg_revoked(hold, &copies) == TG_OK && copies == 0 && tg_revoked(hold, NULL) == TG_E_INVALID);
    EXPECT(tg_release_n(hold, 1) == TG_OK && tg_revoked(hold, &copies) == TG_OK && tg_release(hold) == TG_OK);
    EXPECT(tg_release_n(hold, 1) == TG_E_HANDLE && tg_revoked(hold, &copies) == TG_E_HANDLE);
    EXPECT(tg_release_n(jobs, 1) == TG_E_HANDLE && tg_revoked(jobs, &copies) == TG_E_HANDLE);
    EXPECT(tg_release_n(0, 0) == TG_OK && tg_revoked(0, &copies) == TG_OK);
    EXPECT(tg_release(more) == TG_OK && tg_free(jobs) == TG_OK);
}

/* Two agents take three of five copies each: no denial is known, and one copy is too many. */
static void a_holder_learns_how_many_copies_are_too_many(tg_handle agent) {
    tg_handle agents[2] = {agent, opened("other")}, batch, holds[2];
    uint32_t copies[2] = {0, 0};
    for (int n = 0; n < 2; n++) {
        EXPECT(tg_copies(agents[n], "batch", &batch) == TG_OK && tg_ready(agents[n], 20000) == TG_OK);
        EXPECT(tg_reserve(batch, "acme", 4, 3, &holds[n], NULL) == TG_ALLOWED && tg_free(batch) == TG_OK);
    }
    int first = TG_OK, second = TG_OK;
    for (int call = 0; first == TG_OK && second == TG_OK; call++) {
        EXPECT(call < CALLS_MAX);
        pause_ms(5);
        first = tg_revoked(holds[0], &copies[0]);
        second = tg_revoked(holds[1], &copies[1]);
    }
    EXPECT(first + second == TG_GIVE_BACK && copies[0] + copies[1] == 1);
    int of = copies[0] == 1 ? 0 : 1;
    EXPECT(tg_release_n(holds[of], copies[of]) == TG_OK);
    EXPECT(tg_revoked(holds[of], &copies[of]) == TG_OK && copies[of] == 0);
    EXPECT(tg_release(holds[0]) == TG_OK && tg_close(agents[1], 5000) == TG_OK);
    EXPECT(tg_revoked(holds[1], &copies[1]) == TG_ENDED && tg_release(holds[1]) == TG_OK);
}

static void a_holder_learns_that_its_hold_has_ended(tg_handle agent) {
    tg_handle brief, hold;
    uint32_t copies = 7;
    int code;
    EXPECT(tg_copies(agent, "brief", &brief) == TG_OK && tg_ready(agent, 20000) == TG_OK);
    EXPECT(tg_reserve(brief, "acme", 4, 2, &hold, NULL) == TG_ALLOWED);
    for (int call = 0; (code = tg_revoked(hold, &copies)) == TG_OK; call++) {
        EXPECT(call < CALLS_MAX && copies == 0);
        pause_ms(5);
    }
    EXPECT(code == TG_ENDED && copies == 2);
    EXPECT(tg_release_n(hold, 1) == TG_ENDED && tg_revoked(hold, &copies) == TG_ENDED && copies == 2);
    EXPECT(tg_release(hold) == TG_OK && tg_free(brief) == TG_OK);
}

static void a_child_lets_through_and_opens_its_own(tg_handle agent) {
    tg_handle search = rate_of(agent, "api.search");
    tg_handle jobs, hold;
    tg_answer answer;
    EXPECT(tg_copies(agent, "jobs", &jobs) == TG_OK);
    EXPECT(tg_reserve(jobs, "forked", 6, 1, &hold, NULL) == TG_ALLOWED);
    EXPECT(tg_hit(search, "acme", 4, NULL) == TG_DENIED);
    pid_t child = fork();
    EXPECT(child != -1);
    if (child == 0) {
        tg_counts counts;
        tg_handle none = 7;
        uint64_t failed;
        EXPECT(tg_hit(search, "acme", 4, &answer) == TG_ALLOWED && answer.flags == TG_FORKED);
        EXPECT(tg_reserve(jobs, "acme", 4, 1, &none, &answer) == TG_ALLOWED && none == 0);
        EXPECT(tg_rate(agent, "api.search", &none) == TG_E_FORKED && none == 0);
        EXPECT(tg_settle(hold, 1) == TG_E_HANDLE && tg_hit(hold, "acme", 4, NULL) == TG_E_HANDLE);
        uint32_t copies = 7;
        EXPECT(tg_release_n(hold, 1) == TG_E_FORKED && tg_revoked(hold, &copies) == TG_E_FORKED && copies == 0);
        EXPECT(tg_release(hold) == TG_E_FORKED && tg_ready(agent, 0) == TG_E_FORKED);
        EXPECT(tg_release(hold) == TG_E_HANDLE);
        EXPECT(tg_record(search, "acme", 4, 1) == TG_E_FORKED);
        EXPECT(tg_count(agent, "calls_failed", &failed) == TG_OK && failed == 9);
        EXPECT(tg_stats(agent, &counts) == TG_OK && counts.calls_forked == 2 && counts.hits_accepted == 0);
        tg_handle own = opened("child");
        tg_handle own_search = rate_of(own, "api.search");
        EXPECT(tg_ready(own, 20000) == TG_OK);
        EXPECT(tg_hit(own_search, "acme", 4, NULL) == TG_DENIED);
        EXPECT(tg_close(own, 5000) == TG_OK && tg_close(agent, 5000) == TG_OK && tg_free(search) == TG_OK);
        exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(tg_hit(search, "acme", 4, NULL) == TG_DENIED);
    EXPECT(tg_release(hold) == TG_OK && tg_free(jobs) == TG_OK && tg_free(search) == TG_OK);
}

static void *call_often(void *of) {
    tg_handle rate = *(tg_handle *)of;
    for (int call = 0; call < 5000; call++) {
        EXPECT(tg_hit(rate, "many", 4, NULL) == TG_ALLOWED);
    }
    return NULL;
}

static void threads_call_at_once(tg_handle agent) {
    tg_handle rate = rate_of(agent, "api.free");
    pthread_t threads[4];
    tg_counts before, after;
    EXPECT(tg_stats(agent, &before) == TG_OK);
    for (int number = 0; number < 4; number++) {
        EXPECT(pthread_create(&threads[number], NULL, call_often, &rate) == 0);
    }
    for (int number = 0; number < 4; number++) {
        EXPECT(pthread_join(threads[number], NULL) == 0);
    }
    EXPECT(tg_stats(agent, &after) == TG_OK);
    EXPECT(after.hits_accepted + after.hits_dropped - before.hits_accepted - before.hits_dropped == 20000);
    EXPECT(tg_free(rate) == TG_OK);
}

int main(int count, char **arguments) {
    EXPECT(count == 2 || count == 3);
    address = arguments[1];
    if (count == 3) {
        further = arguments[2];
    }
    EXPECT(tg_abi() == TG_ABI && strlen(tg_version()) != 0);
    tg_handle agent = opened("check");
    EXPECT(tg_rate(agent, NULL, &agent) == TG_E_INVALID && agent == 0);
    agent = opened("check");
    a_refusal_has_everything_for_an_answer(agent);
    bytes_that_are_not_utf8_are_limited(agent);
    more_than_can_be_granted_is_refused_for_good(agent);
    failed_calls_are_counted(agent);
    copies_are_taken_and_given_back(agent);
    copies_are_given_back_in_parts(agent);
    a_holder_learns_how_many_copies_are_too_many(agent);
    a_holder_learns_that_its_hold_has_ended(agent);
    a_child_lets_through_and_opens_its_own(agent);
    threads_call_at_once(agent);
    tg_counts counts;
    EXPECT(tg_stats(agent, &counts) == TG_OK && counts.blind_for_ms == 0 && 1 <= counts.denials_live);
    uint64_t welcomes;
    EXPECT(tg_count(agent, "welcomes", &welcomes) == TG_OK && 1 <= welcomes);
    EXPECT(tg_close(agent, 5000) == TG_OK && tg_stats(agent, &counts) == TG_E_HANDLE);
    puts("all as promised");
    return 0;
}
