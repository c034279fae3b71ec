package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// shortLogs are the settings of three members that keep next to no log for each other.
func shortLogs(t *testing.T) []Config {
	configs := memberConfigs(t, 3)
	for i := range configs {
		configs[i].LogKeepBytes, configs[i].ElectionTimeout = 1<<20, 4*time.Second
	}
	return configs
}

// outgrow writes more through a member than the log keeps.
func outgrow(t *testing.T, leader *Server) {
	t.Helper()
	r := openRaw(t, leader)
	data := strings.Repeat("x", 900<<10)
	for i := range 24 {
		r.must(fmt.Sprint("/big-", i), data, persistent)
	}
	waitFor(t, "the log is truncated", ensembleDeadline, func() bool { return leader.rep.Status().First > 10 })
}

// waitEqual waits until two members have applied the same, and compares it.
func waitEqual(t *testing.T, a, b *Server) {
	t.Helper()
	waitFor(t, "a member catches up", ensembleDeadline, func() bool { return a.store.Applied() == b.store.Applied() })
	if a.store.Digest() != b.store.Digest() {
		t.Errorf("at entry %d: digests %#x and %#x", a.store.Applied(), a.store.Digest(), b.store.Digest())
	}
}

// cutOff lets the others refuse a member, or heals that.
func cutOff(list []*Server, away *Server, cut bool) {
	for _, s := range list {
		peers := map[uint64]string{}
		for _, o := range list {
			if o != s && !(cut && (s == away || o == away)) {
				peers[uint64(o.cfg.MemberID)] = o.cfg.PeerListen
			}
		}
		s.network.SetMembers(peers)
	}
}

// Goal: a member that gets a snapshot while clients are connected cuts them all; their sessions
// go on, watches get an explicit gap, a write whose fate is unknown is applied once when it
// is resent, and the state is that of the others. Method: the network cuts a follower off for
// less than clients would be sent away for, while the others write more than the log keeps.
func TestSnapshotUnderClients(t *testing.T) {
	t.Parallel()
	list := rank(t, startMembers(t, shortLogs(t)))
	leader, lagging := list[0], list[2]
	native, zk := openAs(t, lagging, subprotocolJute, 30*time.Second), openAs(t, lagging, zooKeeper, 30*time.Second)
	native.must("/w", "", persistent)
	zk.must("/w/e", "", znode.Mode{Kind: znode.Ephemeral})
	native.addWatch("/w", 1)
	native.told()
	last := native.call(wire.Request{Op: wire.OpPing}).Zxid
	cutOff(list, lagging, true)
	numbered := wire.Request{Op: wire.OpCreate, Seq: 1, Body: &znode.Create{Path: "/w/n-", ACL: znode.OpenACL, Mode: znode.Mode{Sequential: true}}}
	native.send(numbered)
	openRaw(t, leader).must("/w/missed", "", persistent)
	outgrow(t, leader)
	cutOff(list, lagging, false)
	native.wantClosed("the state was replaced", closeRestart)
	zk.wantClosed("the state was replaced", closeRestart)
	if n := lagging.rep.Stats().SnapshotsReceived; n != 1 {
		t.Errorf("%d snapshots were received", n)
	}
	was := native.session
	native = dialRaw(t, lagging, subprotocolJute)
	if got := native.connect(wire.ConnectRequest{Session: was.Session, Password: was.Password[:], LastZxid: last}); got.Session != was.Session {
		t.Fatalf("session %v went on as %v", was.Session, got.Session)
	}
	native.call(numbered)
	if names := strings.Join(native.children("/w"), " "); names != "e missed n-0000000002" && names != "e missed n-0000000001" {
		t.Errorf("children %s", names)
	}
	reply := native.call(wire.Request{Op: wire.OpRewatch, Body: &wire.SetWatches{RelZxid: last, Recursive: []string{"/w"}}})
	if reply.Err != znode.OK || reply.Body.(*wire.RewatchReply).Complete {
		t.Errorf("the watch went on with %v, %+v", reply.Err, reply.Body)
	}
	native.wantTold("behind the gap", "gap /w")
	if again := resumeRaw(t, lagging, zooKeeper, zk.session); again.session.Session != zk.session.Session {
		t.Error("ZooKeeper's client lost its session")
	}
	waitEqual(t, leader, lagging)
}

// Goal: a member that stops between the log's batch and the state's place is sound, and finishes the
// install when it starts again, without another snapshot. Method: a disk that refuses to move the
// received state; the member fails and says so; start it on the same directory.
func TestInterruptedInstallIsFinished(t *testing.T) {
	t.Parallel()
	configs := shortLogs(t)
	list := rank(t, startMembers(t, configs))
	leader, lagging := list[0], list[2]
	c := lagging.cfg
	c.Listen, c.ZKListen = "127.0.0.1:0", "127.0.0.1:0"
	stopServer(t, lagging)
	outgrow(t, leader)
	var refused atomic.Int64
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRename && strings.HasSuffix(op.Path, ".incoming") {
			refused.Add(1)
			return errors.New("not now")
		}
		return nil
	}))
	failing, err := openOn(c, slog.New(slog.NewTextHandler(t.Output(), nil)), fs)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-failing.Failed():
	case <-time.After(ensembleDeadline):
		t.Fatal("it did not fail")
	}
	if err := failing.Err(); !strings.Contains(err.Error(), "not now") || refused.Load() == 0 {
		t.Errorf("it failed with %v", err)
	}
	if err := failing.admits(); err == nil {
		t.Error("it lets clients in")
	}
	ctx, cancel := context.WithTimeout(t.Context(), ensembleDeadline)
	defer cancel()
	if err := failing.Shutdown(ctx); err == nil {
		t.Error("it stopped without an error")
	}
	if r, err := CheckDataDir(c.DataDir, slog.New(slog.DiscardHandler)); err != nil || len(r.Problems) > 0 {
		t.Errorf("check: %v, %v", r.Problems, err)
	}
	finished := startServer(t, c)
	waitServing(t, finished)
	waitEqual(t, leader, finished)
	if n := finished.rep.Stats().SnapshotsReceived; n != 0 {
		t.Errorf("it needed %d more snapshots", n)
	}
	openRaw(t, finished).must("/after", "", persistent)
	waitEqual(t, leader, finished)
}

// Goal: behind a snapshot a member says at once which state it has, though nothing is applied
// after it. Method: adopt the state of a server, and look at what its status is made of.
func TestReceivedStateIsTheNewest(t *testing.T) {
	t.Parallel()
	from := startServer(t, Config{})
	openRaw(t, from).must("/a", "x", persistent)
	source, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	applied := source.Applied()
	if err := errors.Join(source.Write(&file, nil), source.Close()); err != nil {
		t.Fatal(err)
	}
	s := newServer(Config{DataDir: t.TempDir()}.WithDefaults(), slog.New(slog.DiscardHandler))
	if err := s.openStore(vfs.NewMem()); err != nil {
		t.Fatal(err)
	}
	defer s.store.Close()
	s.digests.note(1, 7)
	sink, err := s.Incoming(applied)
	if err == nil {
		err = errors.Join(sink.Receive(&file), s.adopt(applied))
	}
	if err != nil {
		t.Fatal(err)
	}
	list := s.digests.list()
	if got, want := list[len(list)-1], (DigestAt{applied, formatDigest(s.store.Digest())}); got != want {
		t.Errorf("the newest state known is %v, want %v", got, want)
	}
}
