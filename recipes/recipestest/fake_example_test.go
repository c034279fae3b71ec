package recipestest_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// The Fake works outside of tests as well, in real time: here to show a lock of two
// clients, one of which goes away.
func ExampleNewFake() {
	fake := recipestest.NewFake(recipestest.FakeOptions{Exact: true})
	a, b := fake.Connect(), fake.Connect()
	defer b.Close()
	ctx := context.Background()

	lock := func(s recipes.Store) *recipes.Tenure {
		m, err := recipes.NewMutex(s, "/demo", recipes.Options{})
		if err != nil {
			log.Fatal(err)
		}
		t, err := m.Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	first := lock(a)
	fmt.Println("first holds:", first.Check() == nil)
	a.Close()
	second := lock(b)
	fmt.Println("first still holds:", first.Check() == nil, errors.Is(first.Err(), recipes.ErrSessionClosed))
	fmt.Println("second holds:", second.Check() == nil, "with a higher token:", second.Token() > first.Token())
	// Output:
	// first holds: true
	// first still holds: false true
	// second holds: true with a higher token: true
}
