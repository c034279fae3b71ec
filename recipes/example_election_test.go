package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// A service that must run in exactly one place. What an expert does in the function that
// leads: seal, then read; CheckFor before every action, with the same limit on the action;
// Txn for what is written to the store itself.
func ExampleElection_Run() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect() // or native.Connect, zk.Connect
	defer store.Close()

	// The resource outside of the store, which remembers tokens. Here it is in memory and
	// so is its memory; see SQLFence and FenceHandler for what outlasts a process.
	ledger := recipes.NewFenceGuard(&recipes.MemoryHighWater{})
	book := func(ctx context.Context, token recipes.Token, invoice string) error {
		return ledger.Do(ctx, "ledger", token, func(context.Context) error {
			fmt.Println("booked", invoice)
			return nil
		})
	}

	lead := func(ctx context.Context, t *recipes.Tenure) error {
		// From here on nothing of a former leader can change what is read next.
		if err := ledger.Admit(ctx, "ledger", t.Token()); err != nil {
			return err
		}
		const need = time.Second // what one action may take
		for _, invoice := range []string{"1001", "1002"} {
			if t.CheckFor(need) != nil {
				return nil // too little time is left: resign, and ask again
			}
			action, done := context.WithTimeout(ctx, need)
			err := book(action, t.Token(), invoice)
			done()
			if errors.Is(err, recipes.ErrStaleToken) {
				return nil // it was sealed with ours, so another leads by now
			}
			if err != nil {
				return err // ends Run
			}
			// Inside the store the commit itself is conditional on the tenure.
			if _, err := t.Txn(ctx, recipes.OpSet("/billing/last", []byte(invoice), recipes.Always())); err != nil {
				return err
			}
		}
		stop() // a service would go on until ctx ends
		return nil
	}

	if _, err := store.Create(ctx, "/billing", nil, recipes.CreateSpec{}); err != nil {
		log.Fatal(err)
	}
	if _, err := store.Create(ctx, "/billing/last", nil, recipes.CreateSpec{}); err != nil {
		log.Fatal(err)
	}
	election, err := recipes.NewElection(store, "/billing/leader", recipes.ElectionOptions{
		Options: recipes.Options{ID: "host-1"},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := election.Run(ctx, lead); err != nil {
		log.Fatal(err)
	}
	fmt.Println("released")
	// Output:
	// booked 1001
	// booked 1002
	// released
}

// Campaign gives a single tenure to whoever wants to decide by itself when to give it up.
// The end of the ctx of Campaign is not the end of the tenure.
func ExampleElection_Campaign() {
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	election, err := recipes.NewElection(store, "/billing/leader", recipes.ElectionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // bounds the waiting
	tenure, err := election.Campaign(ctx)
	cancel()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("leads:", tenure.Check() == nil)

	// An error of Release says that the backend has not confirmed it yet. The tenure is
	// over all the same, and its znode goes in the background.
	if err := tenure.Release(context.Background()); err != nil {
		log.Print(err)
	}
	err = tenure.Check()
	fmt.Println("lost:", errors.Is(err, recipes.ErrLost), "because it was released:", errors.Is(err, recipes.ErrReleased))
	// Output:
	// leads: true
	// lost: true because it was released: true
}

// Who leads, as others see it. That nobody does is news, too.
func ExampleElection_Observe() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fake := recipestest.NewFake(recipestest.FakeOptions{Exact: true})
	store, observer := fake.Connect(), fake.Connect()
	defer store.Close()
	defer observer.Close()

	open := func(s recipes.Store, id string) *recipes.Election {
		e, err := recipes.NewElection(s, "/billing/leader", recipes.ElectionOptions{
			Options: recipes.Options{ID: id, Data: []byte(id + ".example.com:8080")},
		})
		if err != nil {
			log.Fatal(err)
		}
		return e
	}
	tenure, err := open(store, "host-1").Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for view, err := range open(observer, "").Observe(ctx) {
		switch {
		case err != nil:
			log.Fatal(err)
		case !view.Fresh:
			fmt.Println("the connection is lost; this is the last known view")
		case view.Leader == nil:
			fmt.Println("nobody leads")
			return
		default:
			fmt.Printf("%s leads, at %s\n", view.Leader.ID, view.Leader.Data)
			if err := tenure.Release(ctx); err != nil {
				log.Print(err)
			}
		}
	}
	// Output:
	// host-1 leads, at host-1.example.com:8080
	// nobody leads
}

// A write of a former holder that was already on its way when the next one took over: it
// is refused by the store, whose order it comes too late in.
func ExampleTenure_Guard() {
	ctx := context.Background()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	if _, err := store.Create(ctx, "/cursor", nil, recipes.CreateSpec{}); err != nil {
		log.Fatal(err)
	}
	mutex, err := recipes.NewMutex(store, "/lock", recipes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	former, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	late := append(former.Guard(), recipes.OpSet("/cursor", []byte("of the former"), recipes.Always()))
	if err := former.Release(ctx); err != nil {
		log.Fatal(err)
	}
	tenure, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer tenure.Release(ctx)
	if _, err := tenure.Txn(ctx, recipes.OpSet("/cursor", []byte("of the next"), recipes.Always())); err != nil {
		log.Fatal(err)
	}

	_, err = store.Multi(ctx, late...)
	refused, ok := errors.AsType[*recipes.MultiError](err)
	fmt.Println("refused:", ok && refused.Index < len(former.Guard()))
	data, _, err := store.Get(ctx, "/cursor")
	fmt.Printf("%s %v\n", data, err)
	// Output:
	// refused: true
	// of the next <nil>
}

// Health makes a leader step down that renews its session as well as ever but cannot do
// its work.
func ExampleHealth() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	var readOnly atomic.Bool
	election, err := recipes.NewElection(store, "/billing/leader", recipes.ElectionOptions{
		Health: &recipes.Health{
			Check: func(context.Context) error {
				if readOnly.Load() {
					return errors.New("the disk is read-only")
				}
				return nil
			},
			Every:    time.Millisecond, // by default 5 s
			Failures: 3,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = election.Run(ctx, func(ctx context.Context, _ *recipes.Tenure) error {
		readOnly.Store(true)
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		stop() // a service would be a candidate again after Health.Cooldown
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// health check failed: the disk is read-only
}
