package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// Holding everybody back: while the barrier is raised, Wait waits.
func ExampleBarrier() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect() // or native.Connect, zk.Connect
	defer store.Close()
	barrier, err := recipes.NewBarrier(store, "/maintenance")
	if err != nil {
		log.Fatal(err)
	}
	if err := barrier.Raise(ctx); err != nil {
		log.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() { passed <- barrier.Wait(ctx) }()
	fmt.Println("maintenance")
	if err := barrier.Lower(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("passed:", <-passed)
	// Output:
	// maintenance
	// passed: <nil>
}

// Beginning together and ending together, round after round.
func ExampleDoubleBarrier() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fake := recipestest.NewFake(recipestest.FakeOptions{Exact: true})
	const parties = 3
	numbers := make(chan int64, parties)
	party := func() error {
		store := fake.Connect()
		defer store.Close()
		barrier, err := recipes.NewDoubleBarrier(store, "/simulation", parties, recipes.Options{})
		if err != nil {
			return err
		}
		round, err := barrier.Enter(ctx) // all three are there now
		if err != nil {
			return err
		}
		numbers <- round.Number()
		return round.Leave(ctx) // all three have done their part
	}
	var all sync.WaitGroup
	for range parties {
		all.Go(func() {
			if err := party(); err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
	first, second, third := <-numbers, <-numbers, <-numbers
	fmt.Println("one round:", first == second && second == third)
	// Output:
	// one round: true
}

// Work for one of several consumers at a time. What a consumer writes into the store when
// it is done is written once; what it does elsewhere may be done again if it dies before.
func ExampleQueue() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	queue, err := recipes.NewQueue(store, "/thumbnails", recipes.QueueOptions{Redeliver: 5})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 { // the second changes nothing: an item with this id is there
		if _, err := queue.Put(ctx, []byte("cat.jpg"), recipes.ID("cat")); err != nil {
			log.Fatal(err)
		}
	}

	for item, err := range queue.Items(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if item.Attempt == 1 {
			// A failure that may pass. Where it will not, leave it to Redeliver.
			if err := item.Nack(ctx, 10*time.Millisecond); err != nil {
				log.Print(err) // it goes on in the background
			}
			continue
		}
		fmt.Printf("%s, attempt %d\n", item.Body, item.Attempt)
		done := recipes.OpCreate("/thumbnail-of-cat", []byte("100x100"), recipes.CreateSpec{})
		err := item.Ack(ctx, done)
		if errors.Is(err, recipes.ErrLost) {
			continue // this consumer was away for too long: another has the item, or will
		}
		if err != nil {
			log.Fatal(err)
		}
		break
	}
	data, _, err := store.Get(ctx, "/thumbnail-of-cat")
	fmt.Printf("%s %v\n", data, err)
	// Output:
	// cat.jpg, attempt 2
	// 100x100 <nil>
}

// A number that many add to, each addition exactly once.
func ExampleCounter() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	counter, err := recipes.NewCounter(store, "/invoices")
	if err != nil {
		log.Fatal(err)
	}
	n, err := counter.Add(ctx, 1)
	fmt.Println(n, err)

	// For high rates: a hundred numbers for one write. Those that are not used are gone.
	after, last, err := counter.Reserve(ctx, 100)
	fmt.Println(after+1, "to", last, err)
	// Output:
	// 1 <nil>
	// 2 to 101 <nil>
}
