/* cost ADDRESS [rounds]: what a call costs, how many calls were recorded, and how many of them the log has.
 *
 * A thousand domains of 29 bytes, called a million times a second, like benches/: it measures blocks of a thousand
 * calls, with a pause between them. Prints the median block, and the longest of the fastest tenth, which is nearer the
 * truth on a machine that does something else too. With `rounds` it measures once for each line of its standard input:
 * `tollgate-benches doors` kills the aggregator between two. Built like examples/limited.c, with -O2.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tollgate.h>

enum { DOMAINS = 1000, BLOCKS = 2000 };

static char domains[DOMAINS][32];
static long blocks[BLOCKS];

static long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int ascending(const void *one, const void *other) {
    long a = *(const long *)one, b = *(const long *)other;
    return (b < a) - (a < b);
}

static double percent(uint64_t before, uint64_t after) {
    return 100.0 * (double)(after - before) / ((double)BLOCKS * DOMAINS);
}

static void measure(tg_handle agent, tg_handle rate) {
    tg_answer answer;
    tg_counts before, after;
    size_t len = strlen(domains[0]);
    long refused = 0;
    tg_stats(agent, &before);
    for (int block = 0; block < BLOCKS; block++) {
        long start = now_ns();
        for (int i = 0; i < DOMAINS; i++) {
            refused += tg_hit(rate, domains[i], len, &answer) != TG_ALLOWED;
        }
        blocks[block] = now_ns() - start;
        while (now_ns() - start < 1000000) {
        }
    }
    tg_stats(agent, &after);
    qsort(blocks, BLOCKS, sizeof blocks[0], ascending);
    printf("C: %.1f ns a call (a tenth: %.1f), %.2f %% recorded, %.2f %% acknowledged, %ld refused\n",
           (double)blocks[BLOCKS / 2] / DOMAINS, (double)blocks[BLOCKS / 10] / DOMAINS,
           percent(before.hits_accepted, after.hits_accepted), percent(before.hits_acknowledged, after.hits_acknowledged),
           refused);
    fflush(stdout);
}

int main(int count, char **arguments) {
    char settings[256], line[16];
    tg_handle agent, rate;
    snprintf(settings, sizeof settings, "aggregators=%s; name=cost", 1 < count ? arguments[1] : "127.0.0.1:7401");
    if (tg_open(settings, &agent) != TG_OK || tg_rate(agent, "api.free", &rate) != TG_OK) {
        return 2;
    }
    for (int i = 0; i < DOMAINS; i++) {
        snprintf(domains[i], sizeof domains[i], "tenant:%08x:user:%08x", (unsigned)i, (unsigned)i * 7919u);
    }
    tg_ready(agent, 5000);
    if (count < 3) {
        measure(agent, rate);
    } else {
        while (fgets(line, sizeof line, stdin)) {
            measure(agent, rate);
        }
    }
    tg_close(agent, 2000);
    return 0;
}
