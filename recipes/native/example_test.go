package native_test

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/native"
)

// A program that leads on a Tenure server until it is told to stop. On SIGTERM the context
// of lead ends, Run waits for lead to return and releases, and the next candidate leads
// one round trip later.
func ExampleConnect() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	connecting, cancel := context.WithTimeout(ctx, 30*time.Second)
	store, err := native.Connect(connecting, client.Options{
		Endpoints: []string{"127.0.0.1:2180"},
		Timeout:   10 * time.Second, // after a crash the next one leads this long later
	})
	cancel()
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	election, err := recipes.NewElection(store, "/svc/leader", recipes.ElectionOptions{})
	if err != nil {
		log.Print(err)
		return
	}
	err = election.Run(ctx, func(ctx context.Context, t *recipes.Tenure) error {
		fmt.Println("leads with token", t.Token())
		for t.CheckFor(time.Second) == nil {
			select {
			case <-time.After(100 * time.Millisecond): // an action of a second at most
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
