package tollgate

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// The aggregator of the tests limits api.search to a few calls a minute, llm.tokens to 100 a minute, jobs to 2 copies,
// batch to 5 of which excess is given back, and a hold of brief to a second.
func opened(t testing.TB) *Agent {
	t.Helper()
	address := os.Getenv("TOLLGATE_TEST_AGGREGATOR")
	if address == "" {
		t.Skip("TOLLGATE_TEST_AGGREGATOR: not set; `cargo test -p tollgate-tests --test doors` does")
	}
	agent, err := Open("aggregators=" + address + "; name=go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Close(5 * time.Second) })
	if !agent.Ready(20 * time.Second) {
		t.Fatal("no aggregator answers")
	}
	return agent
}

func rateOf(t testing.TB, agent *Agent, resource string) *Rate {
	t.Helper()
	rate, err := agent.Rate(resource)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rate.Free)
	agent.Ready(20 * time.Second)
	return rate
}

func TestARefusalHasEverythingForAnAnswer(t *testing.T) {
	search := rateOf(t, opened(t), "api.search")
	var denied *Denied
	for call := 0; denied == nil && call < 4000; call++ {
		denied = search.Hit("go")
		time.Sleep(2 * time.Millisecond)
	}
	if denied == nil {
		t.Fatal("never refused")
	}
	if denied.Status != 429 || denied.RetryAfter <= 0 || denied.RetryAfter > time.Minute || denied.Never {
		t.Fatalf("%+v", denied)
	}
	if search.Peek("go") == nil || search.Peek("other") != nil {
		t.Fatal("a peek that is another answer")
	}
	for _, name := range []string{"Retry-After", "Ratelimit", "Ratelimit-Policy", "X-Tollgate-Code"} {
		if len(denied.Header[name]) != 1 {
			t.Errorf("no %s: %v", name, denied.Header)
		}
	}
	if kind := denied.Header["Content-Type"]; len(kind) != 1 || kind[0] != "application/problem+json" {
		t.Error(kind)
	}
	if !strings.Contains(denied.Body, "#quota-exceeded") || !strings.Contains(denied.Error(), denied.Code) {
		t.Errorf("%s: %s", denied, denied.Body)
	}
}

func TestBytesThatAreNotUTF8AreLimited(t *testing.T) {
	search := rateOf(t, opened(t), "api.search")
	for call := 0; search.Hit("go\xff") == nil; call++ {
		if call == 4000 {
			t.Fatal("never refused")
		}
		time.Sleep(2 * time.Millisecond)
	}
	if search.Peek("go\uFFFD") == nil {
		t.Fatal("another domain")
	}
}

func TestCostsAreEstimatedAndSettled(t *testing.T) {
	tokens := rateOf(t, opened(t), "llm.tokens")
	if denied := tokens.HitN("go", 101); denied == nil || !denied.Never || denied.RetryAfter != 0 {
		t.Fatalf("%+v", denied)
	}
	never := "tollgate: refused with 429, more than can ever be granted at once"
	if text := tokens.HitN("go", 101).Error(); text != never {
		t.Error(text)
	}
	estimate, denied := tokens.HitEstimated("go", 60)
	if denied != nil {
		t.Fatal(denied)
	}
	if err := estimate.Settle(10); err != nil {
		t.Fatal(err)
	}
	if err := estimate.Settle(10); err != nil {
		t.Fatal("a second time does nothing", err)
	}
}

func TestCopiesAreTakenAndGivenBack(t *testing.T) {
	agent := opened(t)
	jobs, err := agent.Copies("jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Free()
	agent.Ready(20 * time.Second)
	first, denied := jobs.Reserve("go", 2)
	if denied != nil {
		t.Fatal(denied)
	}
	_, denied = jobs.Reserve("go", 1)
	if denied == nil || denied.Status != 429 || !strings.Contains(denied.Error(), "429, does not end by itself") {
		t.Fatalf("%+v", denied)
	}
	first.Release()
	first.Release()
	for until := time.Now().Add(20 * time.Second); ; {
		hold, denied := jobs.Reserve("go", 1)
		if denied == nil {
			hold.Release()
			return
		}
		if time.Now().After(until) {
			t.Fatal(denied)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The resource, once the agent has its limits.
func copiesOf(t testing.TB, agent *Agent, resource string) *Copies {
	t.Helper()
	copies, err := agent.Copies(resource)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(copies.Free)
	agent.Ready(20 * time.Second)
	return copies
}

func reserved(t testing.TB, copies *Copies, domain string, wanted uint32) *Hold {
	t.Helper()
	hold, denied := copies.Reserve(domain, wanted)
	if denied != nil {
		t.Fatal(denied)
	}
	t.Cleanup(hold.Release)
	return hold
}

// The first revocation of one of the holds, and its hold.
func revocation(t testing.TB, holds ...*Hold) (*Hold, *Revoked) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		for _, hold := range holds {
			if revoked := hold.Revoked(); revoked != nil {
				return hold, revoked
			}
		}
	}
	t.Fatal("never revoked")
	return nil, nil
}

func TestCopiesAreGivenBackInParts(t *testing.T) {
	jobs := copiesOf(t, opened(t), "jobs")
	hold := reserved(t, jobs, "go-parts", 2)
	if err := hold.ReleaseN(1); err != nil {
		t.Fatal(err)
	}
	for _, copies := range []uint32{0, 2} {
		if err := hold.ReleaseN(copies); err == nil || !strings.Contains(err.Error(), "copies") {
			t.Error(copies, err)
		}
	}
	if revoked := hold.Revoked(); revoked != nil {
		t.Error(revoked)
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		more, denied := jobs.Reserve("go-parts", 1)
		if more.Release(); denied == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal(denied)
		}
	}
	hold.Release()
	if err, revoked := hold.ReleaseN(1), hold.Revoked(); err != nil || revoked != nil {
		t.Error(err, revoked)
	}
}

// Two agents take three of five copies each: no denial is known, and one copy is too many.
func TestCopiesThatAreTooManyAreAskedBack(t *testing.T) {
	one := reserved(t, copiesOf(t, opened(t), "batch"), "go", 3)
	two := reserved(t, copiesOf(t, opened(t), "batch"), "go", 3)
	hold, revoked := revocation(t, one, two)
	if *revoked != (Revoked{Reason: TooMany, Copies: 1}) || !strings.Contains(revoked.String(), "1 copies") {
		t.Fatal(revoked)
	}
	if err := hold.ReleaseN(revoked.Copies); err != nil {
		t.Fatal(err)
	}
	if first, second := one.Revoked(), two.Revoked(); first != nil || second != nil {
		t.Error(first, second)
	}
}

func TestAHoldEndsAtItsGreatestAge(t *testing.T) {
	hold := reserved(t, copiesOf(t, opened(t), "brief"), "go", 2)
	if _, revoked := revocation(t, hold); *revoked != (Revoked{Reason: Ended, Copies: 2}) {
		t.Fatal(revoked)
	}
	var revoked *RevokedError
	if err := hold.ReleaseN(1); !errors.As(err, &revoked) || revoked.Reason != Ended || err.Error() == "" {
		t.Error(err)
	}
}

func TestMistakesLetThroughAndAreNamed(t *testing.T) {
	agent := opened(t)
	if _, err := Open("agregators=a:1"); err == nil || !strings.Contains(err.Error(), "agregators") {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"settings": second(Open("name=a\x00b")),
		"a rate":   second(agent.Rate("api\x00.search")),
		"copies":   second(agent.Copies("jobs\x00")),
		"a count":  second(agent.Count("welcomes\x00")),
	} {
		if err == nil || !strings.Contains(err.Error(), "NUL") {
			t.Error(what, err)
		}
	}
	if welcomes, err := agent.Count("welcomes"); welcomes == 0 || err != nil {
		t.Error(welcomes, err)
	}
	search := rateOf(t, agent, "api.search")
	if denied := search.Hit(""); denied != nil {
		t.Error(denied)
	}
	search.Free()
	before, _ := agent.Count("calls_failed")
	if denied := search.Hit("go"); denied != nil {
		t.Error(denied)
	}
	if after, err := agent.Count("calls_failed"); after != before+1 {
		t.Error(before, after, err)
	}
}

func second[T any](_ T, err error) error {
	return err
}

func TestCloseSaysWhetherCallsWentUnsent(t *testing.T) {
	agent, err := Open("aggregators=127.0.0.1:1; name=go-alone")
	if err != nil {
		t.Fatal(err)
	}
	search, err := agent.Rate("api.search")
	if err != nil {
		t.Fatal(err)
	}
	defer search.Free()
	search.Hit("go")
	if err := agent.Close(0); err != ErrUnsent {
		t.Error(err)
	}
}

func TestGoroutinesCallAtOnce(t *testing.T) {
	agent := opened(t)
	rate := rateOf(t, agent, "api.free")
	before, _ := agent.Stats()
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 1000 {
				if denied := rate.Hit("go"); denied != nil {
					t.Error(denied)
				}
			}
		}()
	}
	group.Wait()
	after, err := agent.Stats()
	if counted := after.HitsAccepted + after.HitsDropped - before.HitsAccepted - before.HitsDropped; counted != 8000 {
		t.Errorf("%d counted, %v", counted, err)
	}
}
