package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// Who is there, and where. A member stays one over lost connections and ended sessions
// until it leaves or dies.
func ExampleGroup() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fake := recipestest.NewFake(recipestest.FakeOptions{Exact: true})
	store, observer := fake.Connect(), fake.Connect() // or native.Connect, zk.Connect
	defer store.Close()
	defer observer.Close()

	open := func(s recipes.Store) *recipes.Group {
		g, err := recipes.NewGroup(s, "/web", recipes.GroupOptions{})
		if err != nil {
			log.Fatal(err)
		}
		return g
	}
	membership, err := open(store).Join(ctx, "host-1", []byte("10.0.0.1:8080"))
	if err != nil {
		log.Fatal(err)
	}
	for view, err := range open(observer).Members(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if !view.Fresh {
			continue // cut off: these are the last known members, and better than none
		}
		if len(view.Members) == 0 {
			fmt.Println("nobody")
			return // leaving the loop ends the stream
		}
		for _, m := range view.Members {
			fmt.Printf("%s at %s\n", m.ID, m.Data)
		}
		if err := membership.Leave(ctx); err != nil {
			log.Print(err) // it goes on in the background
		}
	}
	// Output:
	// host-1 at 10.0.0.1:8080
	// nobody
}

// A typed value that all see change. What does not decode or is not valid is never shown
// without the last good value.
func ExampleConfig() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()

	type limits struct {
		RequestsPerSecond int `json:"requestsPerSecond"`
	}
	config, err := recipes.NewConfig(store, "/limits", recipes.JSON[limits]{Strict: true}, recipes.ConfigOptions[limits]{
		Validate: func(l limits) error {
			if l.RequestsPerSecond < 1 {
				return errors.New("requestsPerSecond must be at least 1")
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	set := func(n int) {
		_, err := config.Update(ctx, func(l limits) (limits, error) {
			l.RequestsPerSecond = n // whatever else somebody has set meanwhile stays
			return l, nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	set(0)
	set(100)
	for v, err := range config.Watch(ctx) {
		switch {
		case err != nil:
			log.Fatal(err)
		case v.Err != nil: // somebody has written what is not valid: v.V is the last good value
			fmt.Printf("still %d: %v\n", v.V.RequestsPerSecond, v.Err)
			return
		case v.Exists:
			fmt.Println("limit", v.V.RequestsPerSecond)
			if _, err := store.Set(ctx, "/limits", []byte(`{"requests": 7}`), recipes.Always()); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// invalid: value of config /limits: requestsPerSecond must be at least 1
	// limit 100
	// still 100: config /limits, version 1: not the expected JSON: json: unknown field "requests"
}

// A znode that is there whatever happens: sessions that end, and operators who delete it.
func ExampleKeepNode() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fake := recipestest.NewFake(recipestest.FakeOptions{Exact: true})
	store, operator := fake.Connect(), fake.Connect()
	defer store.Close()
	defer operator.Close()

	node, err := recipes.KeepNode(ctx, store, "/services/api/host-1", []byte("10.0.0.1:8080"),
		recipes.CreateSpec{Kind: znode.Ephemeral})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(context.WithoutCancel(ctx))
	if err := operator.Delete(ctx, node.Path(), recipes.Always()); err != nil {
		log.Fatal(err)
	}
	for {
		_, exists, watch, err := operator.ExistsW(ctx, node.Path())
		if err != nil {
			log.Fatal(err)
		}
		if exists {
			watch.Cancel()
			break
		}
		<-watch.C
	}
	fmt.Println("it is back")
	// Output:
	// it is back
}

// Shards divided among all processes that Run, each with a tenure and a token of its own.
func ExampleShards() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	names := []string{"a-h", "i-p", "q-z"}
	shards, err := recipes.NewShards(store, "/index", names, recipes.ShardOptions{
		Options: recipes.Options{ID: "host-1"},
	})
	if err != nil {
		log.Fatal(err)
	}
	owned := make(chan string, len(names))
	go func() {
		var all []string
		for range names {
			all = append(all, <-owned)
		}
		slices.Sort(all)
		fmt.Println("owns", all) // all of them: it is alone
		stop()
	}()
	err = shards.Run(ctx, func(ctx context.Context, shard string, t *recipes.Tenure) error {
		if err := t.Check(); err != nil { // and so before every action, as in an Election
			return err
		}
		owned <- shard
		<-ctx.Done() // until the shard moves, or all ends
		return nil
	})
	fmt.Println(err)
	// Output:
	// owns [a-h i-p q-z]
	// <nil>
}
