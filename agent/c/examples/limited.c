/* limited ADDRESS DOMAIN: asks for hits of a domain until one is refused, and prints the answer to it.
 *
 *     agent/c/install ~/.local && export PKG_CONFIG_PATH=~/.local/lib/pkgconfig LD_LIBRARY_PATH=~/.local/lib
 *     cc -o limited limited.c $(pkg-config --cflags --libs tollgate)
 *     tollgate serve --journal data --limits limits.toml &
 *     ./limited 127.0.0.1:7401 acme
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tollgate.h>

int main(int count, char **arguments) {
    char text[256];
    if (count != 3) {
        fprintf(stderr, "usage: limited ADDRESS DOMAIN\n");
        return 2;
    }
    snprintf(text, sizeof text, "aggregators=%s; name=example", arguments[1]);
    tg_handle agent, search;
    if (tg_open(text, &agent) != TG_OK || tg_rate(agent, "api.search", &search) != TG_OK) {
        tg_last_error(text, sizeof text);
        fprintf(stderr, "%s\n", text);
        return 2;
    }
    tg_ready(agent, 2000); /* Optional: it starts with what is in force. */
    const char *domain = arguments[2];
    tg_answer answer;
    int let_through = 0;
    while (tg_hit(search, domain, strlen(domain), &answer) != TG_DENIED && let_through < 5000) {
        let_through++;
        usleep(2000);
    }
    if (answer.code != TG_DENIED) {
        printf("%d let through, none refused\n", let_through);
    } else {
        printf("%d let through, then %u\n%s\n%s", let_through, answer.status, answer.headers, answer.body);
    }
    tg_close(agent, 2000);
    tg_free(search);
    return answer.code == TG_DENIED ? 0 : 1;
}
