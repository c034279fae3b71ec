package recipes_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// A lock around a piece of work. The ctx of Lock bounds the waiting; that of the work is
// the tenure's, which ends before the lock can be another's.
func ExampleMutex() {
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect() // or native.Connect, zk.Connect
	defer store.Close()
	mutex, err := recipes.NewMutex(store, "/locks/migration", recipes.Options{ID: "host-1"})
	if err != nil {
		log.Fatal(err)
	}

	migrate := func(ctx context.Context) error {
		waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		tenure, err := mutex.Lock(waiting)
		if err != nil {
			return err
		}
		// Also if ctx has ended: Release waits for 2 s at most and goes on in the background.
		defer tenure.Release(context.WithoutCancel(ctx))

		for step := range 3 {
			if err := tenure.Check(); err != nil { // before every action
				return err
			}
			fmt.Println("step", step)
		}
		return nil
	}
	if err := migrate(context.Background()); err != nil {
		log.Fatal(err)
	}

	tenure, locked, err := mutex.TryLock(context.Background())
	fmt.Println("free again:", locked, err)
	if locked {
		tenure.Release(context.Background())
	}
	// Output:
	// step 0
	// step 1
	// step 2
	// free again: true <nil>
}

// Many readers or one writer.
func ExampleRWMutex() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	mutex, err := recipes.NewRWMutex(store, "/locks/catalogue", recipes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var readers []*recipes.Tenure
	for range 2 {
		reader, err := mutex.RLock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		readers = append(readers, reader)
	}
	_, writes, err := mutex.TryLock(ctx)
	fmt.Println(len(readers), "readers; a writer beside them:", writes, err)

	for _, reader := range readers {
		reader.Release(ctx)
	}
	writer, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Release(ctx)
	fmt.Println("a writer after them, its token higher:", writer.Token() > readers[1].Token())
	// Output:
	// 2 readers; a writer beside them: false <nil>
	// a writer after them, its token higher: true
}

// At most so many at a time. How many is stored for all and can be changed while they wait.
func ExampleSemaphore() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	licences, err := recipes.NewSemaphore(store, "/licences", 2, recipes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	both, err := licences.Acquire(ctx, 2) // two slots as one tenure
	if err != nil {
		log.Fatal(err)
	}
	defer both.Release(ctx)
	_, another, err := licences.TryAcquire(ctx, 1)
	fmt.Println("a third:", another, err)

	if err := licences.SetSlots(ctx, 3); err != nil {
		log.Fatal(err)
	}
	third, another, err := licences.TryAcquire(ctx, 1)
	fmt.Println("a third of three:", another, err)
	if another {
		defer third.Release(ctx)
	}
	free, err := licences.Free(ctx)
	fmt.Println("free:", free, err)
	// Output:
	// a third: false <nil>
	// a third of three: true <nil>
	// free: 0 <nil>
}

// Two locks at once, in whatever order they are named: two callers never wait for each
// other. What is written is conditional on both.
func ExampleLockAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	account := func(name, balance string) (*recipes.Mutex, error) {
		if _, err := store.Create(ctx, "/"+name, []byte(balance), recipes.CreateSpec{}); err != nil {
			return nil, err
		}
		return recipes.NewMutex(store, "/locks/"+name, recipes.Options{})
	}
	bob, err := account("bob", "5")
	if err != nil {
		log.Fatal(err)
	}
	alice, err := account("alice", "7")
	if err != nil {
		log.Fatal(err)
	}

	tenure, err := recipes.LockAll(ctx, bob, alice)
	if err != nil {
		log.Fatal(err)
	}
	defer tenure.Release(ctx)
	_, err = tenure.Txn(ctx,
		recipes.OpSet("/alice", []byte("4"), recipes.Always()),
		recipes.OpSet("/bob", []byte("8"), recipes.Always()))
	fmt.Println("transferred:", err == nil, "under", len(tenure.Tokens()), "locks")
	// Output:
	// transferred: true under 2 locks
}

// A lease for whoever wants what Kubernetes has: a record that people read, a holder that
// outlives its session, a hand-over to somebody by name.
func ExampleLease() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fake := recipestest.NewFake(recipestest.FakeOptions{Exact: true})
	open := func(id string) (*recipes.Lease, recipes.Store) {
		store := fake.Connect()
		lease, err := recipes.NewLease(store, "/leases/scheduler", recipes.LeaseOptions{
			Options:     recipes.Options{ID: id},
			Duration:    3 * time.Second, // others take over after that without a renewal
			RetryPeriod: 20 * time.Millisecond,
		})
		if err != nil {
			log.Fatal(err)
		}
		return lease, store
	}
	one, store1 := open("host-1")
	defer store1.Close()
	two, store2 := open("host-2")
	defer store2.Close()

	tenure, err := one.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := two.HandOver(ctx, "host-2"); err != nil {
		log.Fatal(err)
	}
	<-tenure.Context().Done() // the holder is asked to stop its work
	fmt.Println("asked:", context.Cause(tenure.Context()) != nil, "still held:", tenure.Check() == nil)
	if err := tenure.Release(ctx); err != nil {
		log.Fatal(err)
	}

	next, err := two.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release(ctx)
	record, _, err := one.Record(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(record.Holder, "holds it, tenure", record.Transitions)
	// Output:
	// asked: true still held: true
	// host-2 holds it, tenure 2
}
