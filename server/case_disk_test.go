package server

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// hangingFS is a file system whose syncs can be made to hang.
type hangingFS struct {
	vfs.FS
	gate sync.RWMutex // held exclusively while syncs hang
}

func (h *hangingFS) wait() {
	h.gate.RLock()
	defer h.gate.RUnlock()
}

func (h *hangingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.FS.Create(name, c)
	return hangingFile{f, h}, err
}

func (h *hangingFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.FS.ReuseForWrite(oldname, newname, c)
	return hangingFile{f, h}, err
}

type hangingFile struct {
	vfs.File
	h *hangingFS
}

func (f hangingFile) Sync() error     { f.h.wait(); return f.File.Sync() }
func (f hangingFile) SyncData() error { f.h.wait(); return f.File.SyncData() }

func (f hangingFile) SyncTo(n int64) (bool, error) {
	f.h.wait()
	return f.File.SyncTo(n)
}

// Goal (C025, the slow disk): while the log's disk hangs for three session timeouts
// nobody is expired, not even a client whose heartbeats wait unread behind a pipeline
// that is full; then all goes on. Method: syncs of an in-memory file system are held
// back; one client has a full pipeline of writes, the other an ephemeral and nothing
// to say.
func TestC025HangingDiskExpiresNobody(t *testing.T) {
	fs := &hangingFS{FS: vfs.NewMem()}
	s, err := openOn(Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", ZKListen: "none", MaxOutstanding: 8},
		slog.New(slog.NewTextHandler(t.Output(), nil)), fs)
	if err != nil {
		t.Fatal(err)
	}
	defer stopServer(t, s)
	busy, quiet := dialRaw(t, s, subprotocolJute), dialRaw(t, s, subprotocolJute)
	busy.connect(wire.ConnectRequest{TimeoutMs: 1000})
	quiet.connect(wire.ConnectRequest{TimeoutMs: 1000})
	if _, e := quiet.create("/alive", "", znode.Mode{Kind: znode.Ephemeral}); e != znode.OK {
		t.Fatal(e)
	}

	fs.gate.Lock()
	var sent []int32
	for range 40 { // far beyond MaxOutstanding
		sent = append(sent, busy.send(wire.Request{Op: wire.OpCreate, Body: &znode.Create{
			Path: "/w-", ACL: znode.OpenACL, Mode: znode.Mode{Sequential: true}}}))
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		tick := time.NewTimer(200 * time.Millisecond)
		<-tick.C
		busy.send(wire.Request{Op: wire.OpPing}) // unread
	}
	fs.gate.Unlock()

	for _, xid := range sent {
		if r := busy.next(); r.Xid != xid || r.Err != znode.OK {
			t.Fatalf("reply to %d: %v, want to %d: OK", r.Xid, r.Err, xid)
		}
	}
	if _, e := quiet.get("/alive"); e != znode.OK {
		t.Errorf("the ephemeral of a session that could not be heard: %v", e)
	}
}

// Goal (C025, the other way to hang): while an entry cannot be applied nobody is expired.
// Method: the test holds the state lock, as a read that the disk keeps does, so that
// apply waits for it with a write; a client that is not heard has an ephemeral.
func TestC025HangingApplyExpiresNobody(t *testing.T) {
	s := startServer(t, Config{})
	busy, quiet := openRaw(t, s), dialRaw(t, s, subprotocolJute)
	quiet.connect(wire.ConnectRequest{TimeoutMs: 1000})
	if _, e := quiet.create("/alive", "", znode.Mode{Kind: znode.Ephemeral}); e != znode.OK {
		t.Fatal(e)
	}
	s.state.RLock()
	xid := busy.send(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: "/w", ACL: znode.OpenACL}})
	hang := time.NewTimer(3 * time.Second)
	<-hang.C
	s.state.RUnlock()
	if r := busy.next(); r.Xid != xid || r.Err != znode.OK {
		t.Fatalf("reply to %d: %v, want to %d: OK", r.Xid, r.Err, xid)
	}
	if _, e := quiet.get("/alive"); e != znode.OK {
		t.Errorf("the ephemeral of a session that could not be heard: %v", e)
	}
}
