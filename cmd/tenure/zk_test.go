package main

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: every form of a ZooKeeper's address means its servers and one root, also where a
// list of endpoints has cut it. Method: a table.
func TestZooKeeperAddresses(t *testing.T) {
	for _, test := range []struct {
		endpoints []string
		want      string
	}{
		{[]string{"zk://h"}, "h:2181"},
		{[]string{"zk://h:1", "i:2/app"}, "h:1/app, i:2/app"},
		{[]string{"zk://h:1", "zk://i:2/app/x"}, "h:1/app/x, i:2/app/x"},
		{[]string{"zk://[::1]:1/"}, "[::1]:1"},
	} {
		a, _, _ := testApp(outputTable)
		a.endpoints = test.endpoints
		servers, err := a.servers()
		if err != nil || where(servers) != test.want || !servers[0].zk {
			t.Errorf("%q: %q, %v; want %q", test.endpoints, where(servers), err, test.want)
		}
	}
	for _, wrong := range []string{"zk://", "zk://h:1/a//b", "zk://h/a,i", "zk://u@h", "h:1,zk://h", "zk://h,ws://h"} {
		a, _, _ := testApp(outputTable)
		a.endpoints = strings.Split(wrong, ",")
		if servers, err := a.servers(); exitCode(err) != exitUsage {
			t.Errorf("%s: %q, %v; want a usage error", wrong, where(servers), err)
		}
	}
}

// Goal: a store for recipes fails to open as the verbs do: 5, the address and the cause.
// Method: a dead port, for either backend.
func TestC149StoreNamesAddressAndCause(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for _, scheme := range []string{"ws://", "zk://"} {
		a, _, _ := testApp(outputTable)
		a.endpoints, a.timeout, a.sessionTimeout = []string{scheme + address}, 2*time.Second, time.Second
		_, err := a.openStore(t.Context())
		if exitCode(err) != exitUnreachable || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

// Goal: the server's answers keep their codes, also those that the library has no name
// for, and what is no answer of a server is none. Method: a table.
func TestZooKeeperCodes(t *testing.T) {
	for err, want := range map[error]znode.Error{
		zk.ErrNoNode: znode.NoNode, zk.ErrBadVersion: znode.BadVersion, zk.ErrInvalidACL: znode.InvalidACL,
		zk.ErrAuthFailed: znode.AuthFailed, errors.New("unknown error: -125"): znode.QuotaExceeded,
		errors.New("unknown error: -6"): znode.Unimplemented,
	} {
		if code, ok := zkCode(err); !ok || code != want {
			t.Errorf("%v: %v, %v; want %v", err, code, ok, want)
		}
	}
	for _, err := range []error{zk.ErrConnectionClosed, zk.ErrSessionExpired, zk.ErrNoServer, zk.ErrClosing, io.EOF} {
		if code, ok := zkCode(err); ok {
			t.Errorf("%v is no answer, but %v", err, code)
		}
	}
}

// Goal: a server of another kind is named by its first bytes, before a length is made of
// them. Method: the first bytes of such servers through a pipe.
func TestC149GreetingOfAnotherServer(t *testing.T) {
	for text, want := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n": "speaks HTTP", "\x15\x03\x01\x00\x02\x02\x50": "speaks TLS",
		"SSH-2.0-OpenSSH\r\n": "does not speak ZooKeeper's protocol",
	} {
		near, far := net.Pipe()
		d := newZKDialer(nil, newZKSession(time.Second))
		w := &zkWire{Conn: near, dialer: d, address: "h:1", late: time.AfterFunc(time.Hour, func() {}), release: func() bool { return true }}
		go func() {
			defer far.Close()
			_, _ = io.WriteString(far, text) // the reader goes away
		}()
		_, err := io.ReadFull(w, make([]byte, 4))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(d.cause().Error(), "connect to h:1: ") {
			t.Errorf("%q: %v, cause %v; want %q", text, err, d.cause(), want)
		}
		w.Close()
		d.stop()
	}
}

// Goal: a session is over its timeout after the last word of the server, not after the
// connection was found to be lost, and a resume in time keeps it. Method: the library's
// states in a bubble with its own clock.
func TestZooKeeperSessionEndsByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newZKSession(10 * time.Second)
		s.granted(6 * time.Second)
		s.hears()
		s.changed(zk.StateHasSession)
		s.setID(session.ID(7))
		time.Sleep(4 * time.Second) // in the bubble
		s.changed(zk.StateDisconnected)
		time.Sleep(time.Second)
		if resumed := s.changed(zk.StateHasSession); !resumed || s.Err() != nil {
			t.Fatalf("resumed %v, %v", resumed, s.Err())
		}
		s.hears()
		began := time.Now()
		time.Sleep(4 * time.Second)
		s.changed(zk.StateDisconnected)
		<-s.Done()
		if took := time.Since(began); took != 6*time.Second || !errors.Is(s.Err(), znode.SessionExpired) {
			t.Errorf("over after %v, %v; want 6s and SessionExpired", took, s.Err())
		}
	})
}

// Goal: hosts are tried in turn, with a pause after each round that failed and none after
// a success. Method: rounds of two hosts.
func TestZooKeeperHostsInTurn(t *testing.T) {
	var h zkHosts
	if err := h.Init([]string{"a:1", "b:2"}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a:1 false", "b:2 false", "a:1 true", "b:2 false", "connected", "a:1 false", "b:2 false", "a:1 true"} {
		if want == "connected" {
			h.Connected()
			continue
		}
		host, pause := h.Next()
		if got := host + map[bool]string{true: " true", false: " false"}[pause]; got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

// Goal: a list that ZooKeeper gives as a whole is given in pages without asking again,
// and what is kept for that has a bound. Method: the memory of lists alone.
func TestZooKeeperListsAreKeptForPages(t *testing.T) {
	z := &zkTree{lists: map[string][]string{}}
	z.keep("/a", []string{"m", "n", "o"})
	if rest, ok := z.restOf("/a", "m"); !ok || strings.Join(rest, "") != "no" {
		t.Errorf("rest %q, %v", rest, ok)
	}
	if rest, ok := z.restOf("/a", "m"); ok {
		t.Errorf("asked for twice: %q", rest)
	}
	z.keep("/a", []string{"m", "n"})
	if rest, ok := z.restOf("/a", "other"); ok {
		t.Errorf("behind another name: %q", rest)
	}
	for i := range 3 * zkListsMax {
		z.keep("/"+strings.Repeat("x", i+1), []string{"m", "n"})
	}
	if len(z.lists) > zkListsMax {
		t.Errorf("keeps %d lists, at most %d", len(z.lists), zkListsMax)
	}
}

// Goal: containers and TTL nodes are told where a server shows them by their owner, and
// a session's id is not taken for one. Method: Stats with such owners.
func TestZooKeeperOwners(t *testing.T) {
	for owner, want := range map[int64]znode.Lifetime{
		0: {}, 0x1000: {Kind: znode.Ephemeral}, zkContainerOwner: {Kind: znode.Container},
		-1<<56 | 90_000: {Kind: znode.TTL, TTLMs: 90_000},
	} {
		stat, life := statOf(&zk.Stat{EphemeralOwner: owner})
		if life != want || (stat.EphemeralOwner != 0) != (want.Kind == znode.Ephemeral) {
			t.Errorf("owner %#x: %v, %v; want %v", owner, life, stat.EphemeralOwner, want)
		}
	}
}

// Goal: an import whose nodes a server cannot create together creates them one by one.
// Method: a tree that refuses such transactions as zkTree does.
func TestImportWhereTransactionsAreRefused(t *testing.T) {
	f := newFakeTree(t)
	f.beforeMulti = func(n int) error {
		if n == 1 {
			return errNotInTxn
		}
		return nil
	}
	i := importer{tree: f, root: "/i", conflict: func(string) {}}
	for _, r := range []*record{{Path: "/"}, {Path: "/a"}, {Path: "/a/b"}} {
		if err := i.add(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := i.flush(t.Context()); err != nil || i.created != 3 || f.multis != 4 {
		t.Errorf("%v: created %d in %d transactions; want 3 in 4", err, i.created, f.multis)
	}
}

// Goal: the versions of what is read again tell which events were missed: one change is
// told as such, more have a gap. Method: the comparisons of a watch alone.
func TestZooKeeperWatchCompares(t *testing.T) {
	w := &zkWatch{root: "/w", recursive: true, nodes: map[string]*zkNode{
		"/w": {names: map[string]struct{}{"a": {}, "b": {}}, cversion: 2}, "/w/a": {}, "/w/b": {},
	}}
	told := func() string {
		var all []string
		for _, e := range w.events {
			all = append(all, eventName(e.Type)+" "+e.Path)
		}
		w.events = nil
		return strings.Join(all, ", ")
	}
	root := w.nodes["/w"]
	list := func(cversion int32, names ...string) *zkList {
		return &zkList{names, znode.Stat{Cversion: cversion, Pzxid: 9}}
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { w.compareData("/w", root, znode.Stat{Version: 1}) }, "dataChanged /w"},
		{func() { w.compareData("/w", root, znode.Stat{Version: 1}) }, ""},
		{func() { w.compareData("/w", root, znode.Stat{Version: 3}) }, "gap /w, dataChanged /w"},
		{func() { w.compareChildren("/w", root, list(3, "a")) }, "deleted /w/b"},
		{func() { w.compareChildren("/w", root, list(5, "a")) }, "gap /w"},
		{func() { w.gone("/w/a", 10) }, "deleted /w/a"},
		{func() { w.compareChildren("/w", root, list(6)) }, ""},
	} {
		step.do()
		if got := told(); got != step.want {
			t.Errorf("told %q, want %q", got, step.want)
		}
	}
	if created := w.compareChildren("/w", root, list(8, "c", "d")); strings.Join(created, " ") != "/w/c /w/d" || told() != "" {
		t.Errorf("created %q", created)
	}
}
