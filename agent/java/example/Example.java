import dev.tollgate.Tollgate;
import java.time.Duration;

/** Asks for hits of a domain until one is refused, and prints the answer: Example ADDRESS DOMAIN. */
final class Example {
    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 2) {
            System.err.println("usage: Example ADDRESS DOMAIN");
            System.exit(2);
        }
        try (Tollgate agent = Tollgate.open("aggregators=" + arguments[0] + "; name=example")) {
            Tollgate.Rate search = agent.rate("api.search");
            agent.ready(Duration.ofSeconds(2)); // Optional: it starts with what is in force.
            for (int passed = 0; passed < 5000; passed++) {
                Tollgate.Denied denied = search.hit(arguments[1]);
                if (denied != null) {
                    System.out.printf("%d let through, then %d%n%s%n%s", passed, denied.status(), denied.headers(), denied.body());
                    return;
                }
                Thread.sleep(2);
            }
        }
        System.out.println("none refused");
    }
}
