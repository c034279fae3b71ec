package server

import (
	"errors"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
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
