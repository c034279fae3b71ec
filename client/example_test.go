package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// The examples run against a server in memory. With a real one it is just
//
//	client.Connect(ctx, client.Options{Endpoints: []string{"127.0.0.1:2180"}})
func connect(ctx context.Context) (*client.Client, func()) {
	f := client.NewExampleServer()
	c, err := client.Connect(ctx, client.Options{Endpoints: []string{"example:2180"}, Dial: f.Dial})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() { c.Close(); f.Close() }
}

// A znode is created, read and changed on the condition that nobody else has.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := connect(ctx)
	defer done()

	if _, _, err := c.Create(ctx, "/config", []byte("v1"), client.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	data, stat, err := c.Get(ctx, "/config", client.ReadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s at version %d\n", data, stat.Version)

	_, err = c.Set(ctx, "/config", []byte("v2"), stat.Version)
	fmt.Println("first:", err)
	_, err = c.Set(ctx, "/config", []byte("v3"), stat.Version)
	fmt.Println("second:", errors.Is(err, znode.BadVersion))
	// Output:
	// v1 at version 0
	// first: <nil>
	// second: true
}

// A stream of everything that happens below a path. Armed says from when on nothing is
// missed: there a cache would read the tree.
func ExampleClient_Watch() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := connect(ctx)
	defer done()

	armed := func(int64) {
		if _, _, err := c.Create(ctx, "/member", nil, client.CreateOptions{Mode: znode.Mode{Kind: znode.Ephemeral}}); err != nil {
			log.Fatal(err)
		}
		if err := c.Delete(ctx, "/member", -1); err != nil {
			log.Fatal(err)
		}
	}
	for ev, err := range c.Watch(ctx, "/", client.WatchOptions{Recursive: true, Armed: armed}) {
		switch {
		case err != nil:
			log.Fatal(err)
		case ev.Type == wire.EventGap:
			fmt.Println("events are missing: read again")
		case ev.Type == znode.EventDeleted:
			fmt.Println("deleted", ev.Path)
			return
		default:
			fmt.Println("created", ev.Path)
		}
	}
	// Output:
	// created /member
	// deleted /member
}

// Several changes that happen together or not at all, guarded by a check.
func ExampleClient_Multi() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := connect(ctx)
	defer done()

	_, err := c.Multi(ctx,
		&znode.Create{Path: "/job"},
		&znode.Create{Path: "/job/item-", Mode: znode.Mode{Sequential: true}},
		&znode.Check{Path: "/leader", Version: -1},
	)
	var e *client.Error
	if errors.As(err, &e) {
		fmt.Println(e.Path, e.Code)
	}
	_, found, _ := c.Exists(ctx, "/job", client.ReadOptions{})
	fmt.Println("job exists:", found)
	// Output:
	// /leader NoNode (-101)
	// job exists: false
}

// Until when a session certainly lives, by the local clock.
func ExampleSession_Renew() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, done := connect(ctx)
	defer done()

	_, stat, err := c.Create(ctx, "/leader", nil, client.CreateOptions{Mode: znode.Mode{Kind: znode.Ephemeral}})
	if err != nil {
		log.Fatal(err)
	}
	proof, held, err := c.Session().Renew(ctx, wire.Held{Path: "/leader", Czxid: stat.Czxid})
	if err != nil {
		log.Fatal(err)
	}
	left := time.Until(proof.Sent.Add(proof.TTL))
	fmt.Println(held[0], left > 9*time.Second)
	// Output:
	// OK (0) true
}
