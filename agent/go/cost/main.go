// Measures what a call costs, and how many were recorded, like agent/c/examples/cost.c: cost ADDRESS [rounds].
package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"time"

	tollgate "github.com/tollgate-dev/tollgate/agent/go"
)

const domains, blocks = 1000, 2000

func main() {
	if len(os.Args) < 2 {
		fail("usage: cost ADDRESS [rounds]")
	}
	agent, err := tollgate.Open("aggregators=" + os.Args[1] + "; name=cost-go")
	if err != nil {
		fail(err)
	}
	defer agent.Close(2 * time.Second)
	rate, err := agent.Rate("api.free")
	if err != nil {
		fail(err)
	}
	names := make([]string, domains)
	for i := range names {
		names[i] = fmt.Sprintf("tenant:%08x:user:%08x", i, i*7919)
	}
	agent.Ready(5 * time.Second)
	if len(os.Args) < 3 {
		measure(agent, rate, names)
		return
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		measure(agent, rate, names)
	}
}

func measure(agent *tollgate.Agent, rate *tollgate.Rate, names []string) {
	before := stats(agent)
	took := make([]time.Duration, blocks)
	refused := 0
	for block := range took {
		start := time.Now()
		for _, name := range names {
			if rate.Hit(name) != nil {
				refused++
			}
		}
		took[block] = time.Since(start)
		for time.Since(start) < time.Millisecond {
		}
	}
	after := stats(agent)
	slices.Sort(took)
	each := func(took time.Duration) float64 { return float64(took.Nanoseconds()) / domains }
	percent := func(before, after uint64) float64 { return 100 * float64(after-before) / (domains * blocks) }
	fmt.Printf("Go: %.1f ns a call (a tenth: %.1f), %.2f %% recorded, %.2f %% acknowledged, %d refused\n",
		each(took[blocks/2]), each(took[blocks/10]), percent(before.HitsAccepted, after.HitsAccepted),
		percent(before.HitsAcknowledged, after.HitsAcknowledged), refused)
}

func stats(agent *tollgate.Agent) tollgate.Stats {
	stats, err := agent.Stats()
	if err != nil {
		fail(err)
	}
	return stats
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(2)
}
