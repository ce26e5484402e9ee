// Asks for hits of a domain until one is refused, and prints the answer: example ADDRESS DOMAIN.
package main

import (
	"fmt"
	"os"
	"time"

	tollgate "github.com/tollgate-dev/tollgate/agent/go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: example ADDRESS DOMAIN")
		os.Exit(2)
	}
	agent, err := tollgate.Open("aggregators=" + os.Args[1] + "; name=example")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	defer agent.Close(2 * time.Second)
	search, err := agent.Rate("api.search")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	agent.Ready(2 * time.Second) // Optional: it starts with what is in force.
	for passed := range 5000 {
		if denied := search.Hit(os.Args[2]); denied != nil {
			fmt.Printf("%d let through, then %d\n%v\n%s", passed, denied.Status, denied.Header, denied.Body)
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	fmt.Println("none refused")
}
