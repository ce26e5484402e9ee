/* unreached SETTINGS: an agent whose connection is refused because of credentials lets calls through, and makes that
 * visible. Reports what is not so and exits with 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tollgate.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "unreached.c:%d: not so: %s\n", __LINE__, #condition);                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { WAITS_MAX = 4000 };

int main(int count, char **arguments) {
    tg_handle agent, search;
    EXPECT(count == 2 && tg_open(arguments[1], &agent) == TG_OK);
    EXPECT(tg_rate(agent, "api.search", &search) == TG_OK);
    uint64_t refused = 0;
    for (int wait = 0; refused == 0; wait++) {
        struct timespec span = {0, 5000000};
        EXPECT(wait < WAITS_MAX);
        nanosleep(&span, NULL);
        EXPECT(tg_count(agent, "connections_refused", &refused) == TG_OK);
    }
    tg_answer answer;
    tg_counts counts;
    EXPECT(tg_hit(search, "acme", 4, &answer) == TG_ALLOWED && (answer.flags & TG_BLIND));
    EXPECT(tg_stats(agent, &counts) == TG_OK && 0 < counts.blind_for_ms);
    EXPECT(tg_count(agent, "nothing", &refused) == TG_E_INVALID && refused == 0);
    EXPECT(tg_close(agent, 100) == TG_NOT_YET);
    puts("refused, and let through");
    return 0;
}
