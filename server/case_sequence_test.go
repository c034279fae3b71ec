package server

import (
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: the sequence number counts the children that were ever created, and nothing
// else moves it. Method: the mixed story of the row, through every door, across a restart.
func TestC015SequenceCountsChildren(t *testing.T) {
	s := startServer(t, Config{})
	for i, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		p := r.must(fmt.Sprintf("/s%d", i), "", persistent)
		r.must(p+"/a", "", persistent)
		want := func(prefix, number string) {
			t.Helper()
			if got := r.must(p+prefix, "", sequential); got != p+prefix+number {
				t.Errorf("%s: %s, want %s", protocol, got, p+prefix+number)
			}
		}
		want("/n-", "0000000001")
		r.delete(p + "/a")
		r.delete(p + "/n-0000000001")
		want("/m-", "0000000002")
		if _, e := r.create(p+"/m-0000000002", "", persistent); e != znode.NodeExists {
			t.Errorf("create of an existing child: %v", e)
		}
		res := r.multi(&znode.Create{Path: p + "/lost-", ACL: znode.OpenACL, Mode: sequential}, &znode.Delete{Path: "/none", Version: -1})
		if res.Err != znode.NoNode {
			t.Errorf("failing multi: %v", res.Err)
		}
		want("/k-", "0000000003")
		want("/e-", "0000000004")
	}
	r := openRaw(t, restart(t, s))
	if got := r.must("/s0/z-", "", sequential); got != "/s0/z-0000000005" {
		t.Errorf("after a restart %s", got)
	}
}

// Goal: no two creates get the same number, whoever they come from. Method: several
// pipelining sessions under one parent; all numbers from 0 on, each once.
func TestC015SequenceIsUnique(t *testing.T) {
	const sessions, creates = 8, 200
	s := startServer(t, Config{})
	r := openRaw(t, s)
	r.must("/q", "", persistent)
	clients := make([]*rawClient, sessions)
	for i := range clients {
		clients[i] = openAs(t, s, everyDoor[i%3], 0)
	}
	each(sessions, sessions, func(i int) {
		for range creates {
			clients[i].send(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: "/q/n-", ACL: znode.OpenACL, Mode: sequential}})
		}
		last := ""
		for range creates {
			reply := clients[i].next()
			if reply.Err != znode.OK {
				t.Error(reply.Err)
				return
			}
			path := reply.Body.(*znode.Result).Path
			if path <= last {
				t.Errorf("%s behind %s", path, last)
			}
			last = path
		}
	})
	names := r.children("/q")
	for i, name := range names {
		if want := fmt.Sprintf("n-%010d", i); name != want {
			t.Fatalf("child %d is %s, want %s", i, name, want)
		}
	}
	if len(names) != sessions*creates {
		t.Errorf("%d children, want %d", len(names), sessions*creates)
	}
}

// Goal: the part of a sequential name before the number may be empty. Method: the
// row's creates, through every door.
func TestC019EmptyNameBeforeTheNumber(t *testing.T) {
	s := startServer(t, Config{})
	for i, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		p := r.must(fmt.Sprintf("/q%d", i), "", persistent)
		if got := r.must(p+"/", "", sequential); got != p+"/0000000000" {
			t.Errorf("%s: %s", protocol, got)
		}
		if got := r.must("/", "", sequential); len(got) != 11 || r.stat(got) == nil {
			t.Errorf("%s: %s", protocol, got)
		}
		if got := r.must(p+"/a b-", "", sequential); got != p+"/a b-0000000001" {
			t.Errorf("%s: %s", protocol, got)
		}
		if _, e := r.create(p+"/", "", persistent); e != znode.BadArguments {
			t.Errorf("%s: create %s/ without a number: %v", protocol, p, e)
		}
	}
}
