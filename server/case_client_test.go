package server

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// Goal (C069): a write that the server refuses to read, because its limit is lower than
// the client's, fails alone: the session goes on, and so does its numbering of writes,
// which the refused one is part of. Method: a Go client with the default limit against
// a server with a tenth of it.
func TestC069WriteRefusedByALowerLimitOfTheServer(t *testing.T) {
	s := startServer(t, Config{MaxMessageBytes: 100_000})
	c, err := client.Connect(t.Context(), client.Options{Endpoints: []string{s.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Create(t.Context(), "/a", nil, client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	session := c.Session().ID()
	for range 3 {
		if _, err := c.Set(t.Context(), "/a", make([]byte, 200_000), -1); !errors.Is(err, client.ErrTooLarge) {
			t.Fatalf("a write of twice the server's limit: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := c.Set(t.Context(), "/a", []byte("x"), -1)
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("the write behind it: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the write behind it never came through")
		}
	}
	if now := c.Session().ID(); now != session {
		t.Errorf("session %v became %v", session, now)
	}
}

// Goal (C101): a client that is busy with big answers keeps its session. Method: with a
// timeout of 2 s, fifty listings of a parent with 20 000 children at once, again until it
// took twice as long as that, beside small reads.
func TestC101BigAnswersDoNotStarveTheHeartbeat(t *testing.T) {
	s := startServer(t, Config{})
	c, err := client.Connect(t.Context(), client.Options{Endpoints: []string{s.Addr().String()}, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const children = 20_000
	for i := 0; i <= children; i += 500 {
		ops := make([]znode.Op, 0, 500)
		for j := max(i, 1); j < min(i+500, children+1); j++ {
			ops = append(ops, &znode.Create{Path: fmt.Sprintf("/big/%06d", j), ACL: znode.OpenACL})
		}
		if i == 0 {
			ops = append([]znode.Op{&znode.Create{Path: "/big", ACL: znode.OpenACL}}, ops...)
		}
		if _, err := c.Multi(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	session := c.Session().ID()
	var busy sync.WaitGroup
	began := time.Now()
	for range 50 {
		busy.Go(func() {
			for lists := 0; lists == 0 || time.Since(began) < 4*time.Second; lists++ {
				if names, _, err := c.Children(t.Context(), "/big", client.ReadOptions{}); err != nil || len(names) != children {
					t.Errorf("%d children, %v", len(names), err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { busy.Wait(); close(done) }()
	small := 0
	for ; ; small++ {
		if _, _, err := c.Get(t.Context(), "/big", client.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			t.Logf("%d small reads in the %v that the listings took", small, time.Since(began))
			if now := c.Session().ID(); now != session {
				t.Errorf("session %v became %v", session, now)
			}
			return
		default:
		}
	}
}
