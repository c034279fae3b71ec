package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// A resource behind HTTP. The server admits by token; the holder's client sends it, after
// a CheckFor and with the same limit on the request. A request of a former holder that
// was on its way for a long time is refused.
func ExampleFenceHandler() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// The server.
	guard := recipes.NewFenceGuard(&recipes.MemoryHighWater{}) // a FileHighWater or SQLHighWater outlasts the process
	write := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	handler, err := recipes.FenceHandler(write, guard, recipes.FenceHandlerOptions{
		Require: func(*http.Request) []string { return []string{"/billing/leader"} }, // none for one that only reads
	})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	// Its clients.
	store := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer store.Close()
	election, err := recipes.NewElection(store, "/billing/leader", recipes.ElectionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	lead := func() (*recipes.Tenure, *http.Client) {
		tenure, err := election.Campaign(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return tenure, &http.Client{Transport: &recipes.FenceTransport{Tenure: tenure, Need: 5 * time.Second}}
	}
	post := func(client *http.Client) {
		resp, err := client.Post(server.URL, "", nil)
		if err != nil {
			fmt.Println("lost:", errors.Is(err, recipes.ErrLost))
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}

	former, client := lead()
	post(client)
	if err := former.Release(ctx); err != nil {
		log.Fatal(err)
	}
	tenure, next := lead()
	defer tenure.Release(ctx)
	post(next)
	post(client) // it knows by itself, and sends nothing

	late, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	late.Header.Set(recipes.FenceHeader, fmt.Sprintf("%s; %d", former.Name(), former.Token()))
	resp, err := http.DefaultClient.Do(late)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// 204 No Content
	// 204 No Content
	// lost: true
	// 412 Precondition Failed
}

// The coordination service was rebuilt from nothing and gives lower tokens than before:
// the resource refuses them, rightly. An operator sets the floor that it names.
func ExampleSetFloor() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	guard := recipes.NewFenceGuard(&recipes.MemoryHighWater{})
	if err := guard.Admit(ctx, "/svc", 1<<32); err != nil { // a token of the time before
		log.Fatal(err)
	}

	rebuilt := recipestest.NewFake(recipestest.FakeOptions{Exact: true}).Connect()
	defer rebuilt.Close()
	mutex, err := recipes.NewMutex(rebuilt, "/svc", recipes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	use := func() error {
		tenure, err := mutex.Lock(ctx)
		if err != nil {
			return err
		}
		defer tenure.Release(ctx)
		return guard.Admit(ctx, "/svc", tenure.Token())
	}
	stale, refused := errors.AsType[*recipes.StaleTokenError](use())
	fmt.Println("refused:", refused)
	if refused {
		if err := recipes.SetFloor(ctx, rebuilt, "/svc", stale.Highest); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("after the floor was set:", use())
	// Output:
	// refused: true
	// after the floor was set: <nil>
}
