package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// limit puts a quota on path, as zkCli's setquota does, or replaces its limits.
func (r *rawClient) limit(path, limits string) {
	r.t.Helper()
	at := "/zookeeper/quota"
	for part := range strings.SplitSeq(path[1:], "/") {
		at += "/" + part
		r.create(at, "", persistent)
	}
	if _, e := r.create(at+"/zookeeper_limits", limits, persistent); e == znode.NodeExists {
		e = r.set(at+"/zookeeper_limits", limits)
		if e != znode.OK {
			r.t.Fatalf("limits of %s: %v", path, e)
		}
		return
	}
	r.must(at+"/zookeeper_stats", "count=0,bytes=0", persistent)
}

// wantUsage compares the usage znode of path.
func (r *rawClient) wantUsage(what, path string, count, bytes int) {
	r.t.Helper()
	want := fmt.Sprintf("count=%d,bytes=%d", count, bytes)
	got, e := r.get("/zookeeper/quota" + path + "/zookeeper_stats")
	if e != znode.OK || string(got.Data) != want {
		r.t.Errorf("%s: usage of %s is %q %v, want %q", what, path, got.Data, e, want)
	}
}

// Goal: usage follows everything that comes and goes below a quota, however it goes, and
// survives a restart and a snapshot; its znode's Stat does not move and nobody is told.
// Method: a quota over data that is there already, then each way for a znode to change;
// reaper, session end, restart, restore.
func TestZooKeeperQuotaUsage(t *testing.T) {
	s := startServer(t, Config{ReapInterval: 50 * time.Millisecond})
	r, short := openZK(t, s), openZK(t, s)
	r.must("/q", "12345", persistent)
	r.must("/q/a", "123", persistent)
	r.must("/qq", "not below /q", persistent)
	r.limit("/q", "count=100,bytes=1000")
	r.wantUsage("limits over data", "/q", 2, 8)
	usage := "/zookeeper/quota/q/zookeeper_stats"
	before := r.stat(usage)
	watcher := openZK(t, s)
	watcher.watched(wire.OpGetData, usage)
	watcher.addWatch("/zookeeper/quota", 1)

	r.must("/q/a/b", "1", persistent)
	r.set("/q", "1")
	r.setACL("/q/a", znode.OpenACL...)
	r.set("/qq", "1")
	r.wantUsage("create and set", "/q", 3, 5)
	r.delete("/q/a/b")
	r.multi(create("/q/m", "1234"), create("/q/m/n", "12"), &znode.SetData{Path: "/q/m", Version: -1}, &znode.Delete{Path: "/q/m/n", Version: -1})
	r.multi(create("/q/x", "1234"), &znode.Delete{Path: "/none", Version: -1})
	r.wantUsage("delete and multi", "/q", 3, 4)
	short.must("/q/e1", "1", ephemeral)
	short.must("/q/a/e2", "22", ephemeral)
	r.wantUsage("ephemerals", "/q", 5, 7)
	short.call(wire.Request{Op: wire.OpCloseSession})
	r.wantUsage("the session's end", "/q", 3, 4)
	r.call(wire.Request{Op: wire.OpCreateContainer, Body: &znode.Create{Path: "/q/c", Data: []byte("1"), ACL: znode.OpenACL, Mode: container}})
	r.must("/q/c/x", "1", persistent)
	r.delete("/q/c/x")
	waitFor(t, "the container is reaped", 10*time.Second, func() bool { return r.stat("/q/c") == nil })
	r.wantUsage("the reaper", "/q", 3, 4)

	watcher.wantTold("changes below a quota")
	after := r.stat(usage)
	before.DataLength = after.DataLength
	if *after != *before {
		t.Errorf("the usage's Stat has moved: %+v, was %+v", after, before)
	}
	snapshot := restored(t, s)
	s = restart(t, s)
	for name, s := range map[string]*Server{"restart": s, "snapshot": snapshot} {
		r := openZK(t, s)
		r.wantUsage(name, "/q", 3, 4)
		r.must("/q/later", "1", persistent)
		r.wantUsage("create behind a "+name, "/q", 4, 5)
	}
}

func create(path, data string) *znode.Create {
	return &znode.Create{Path: path, Data: []byte(data), ACL: znode.OpenACL}
}

// Goal: a hard limit that is enforced refuses growth beyond it with -125, of all kinds of
// create and of data, also inside a multi and by what is there already, and nothing else;
// limits on an ancestor and a descendant are each the nearest's. Method: fill up to the
// limit, then try each.
func TestZooKeeperHardQuota(t *testing.T) {
	s := startServer(t, Config{EnforceQuota: true})
	r := openZK(t, s)
	r.must("/h", "", persistent)
	r.must("/h/a", "123", persistent)
	r.limit("/h", "count=-1,bytes=-1=;byteHardLimit=5;countHardLimit=3")
	r.must("/h/b", "", persistent)
	for _, c := range []znode.Create{{Mode: persistent}, {Mode: sequential, WantStat: true}, {Mode: ephemeral},
		{Mode: container, WantStat: true}, {Mode: znode.Mode{Kind: znode.TTL}, TTLMs: 1000, WantStat: true}} {
		c.Path, c.ACL = "/h/c", znode.OpenACL
		if e := r.call(wire.Request{Op: wire.OpOf(&c), Body: &c}).Err; e != znode.QuotaExceeded {
			t.Errorf("%v %+v beyond the count: %v", wire.OpOf(&c), c.Mode, e)
		}
	}
	for data, want := range map[string]znode.Error{"123": znode.QuotaExceeded, "12": znode.OK} {
		if e := r.set("/h/b", data); e != want {
			t.Errorf("set %q: %v, want %v", data, e, want)
		}
	}
	// What one multi gives back it may use again, and no more.
	swap := r.multi(&znode.Delete{Path: "/h/b", Version: -1}, create("/h/c", "12"))
	over := r.multi(&znode.Delete{Path: "/h/c", Version: -1}, create("/h/d", ""), create("/h/e", ""))
	if swap.Sub[1].Err != znode.OK || over.Sub[2].Err != znode.QuotaExceeded || over.Sub[0].Err != znode.OK {
		t.Errorf("multi: %+v, then %+v", swap, over)
	}
	// Limits below what is there: shrinking and giving back are allowed, growth is not.
	r.limit("/h", "count=-1,bytes=-1=;byteHardLimit=1;countHardLimit=1")
	steps := []znode.Error{r.set("/h/a", "12"), r.set("/h/a", "123"), r.set("/h/a", "21"), r.delete("/h/c")}
	if want := []znode.Error{znode.OK, znode.QuotaExceeded, znode.OK, znode.OK}; fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("above the limits: %v, want %v", steps, want)
	}
	// Only the nearest limits count, and only it is charged.
	r.limit("/h/a", "count=9,bytes=9=;countHardLimit=2")
	r.must("/h/a/x", "12345", persistent)
	if _, e := r.create("/h/a/y", "", persistent); e != znode.QuotaExceeded {
		t.Errorf("beyond the nearer limit: %v", e)
	}
	r.wantUsage("nearest", "/h/a", 2, 7)
	r.wantUsage("nearest", "/h", 2, 2)
	// delquota: without limits nothing is refused.
	for _, path := range []string{"/h/a", "/h"} {
		r.delete("/zookeeper/quota" + path + "/zookeeper_limits")
		r.delete("/zookeeper/quota" + path + "/zookeeper_stats")
		r.delete("/zookeeper/quota" + path)
	}
	r.must("/h/a/y", "123456789", persistent)
}

// logBuffer collects what a server logs.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) lines(containing string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, containing) {
			n++
		}
	}
	return n
}

// startLogged is startServer with everything that the server logs, debug lines too.
func startLogged(t *testing.T, cfg Config) (*Server, *logBuffer) {
	t.Helper()
	log := new(logBuffer)
	cfg.DataDir, cfg.Listen, cfg.ZKListen = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0"
	s, err := Open(cfg, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopServer(t, s) })
	return s, log
}

// Goal: a soft limit refuses nothing and is logged when it is exceeded: once, not per
// write, and not again for use that goes up and down around it. Method: count lines.
func TestZooKeeperSoftQuotaIsLoggedOnce(t *testing.T) {
	s, log := startLogged(t, Config{EnforceQuota: true})
	r := openZK(t, s)
	r.must("/soft", "", persistent)
	r.limit("/soft", "count=2,bytes=3")
	const count, size = "path=/soft limit=count used=3 max=2", "path=/soft limit=bytes used=4 max=3"
	r.must("/soft/a", "", persistent)
	if n := log.lines("quota exceeded"); n != 0 {
		t.Errorf("%d lines within the limits", n)
	}
	for range 10 {
		name := r.must("/soft/b", "", sequential)
		r.delete(name)
	}
	r.must("/soft/c", "1", persistent)
	r.must("/soft/d", "123", persistent)
	r.set("/soft/d", "12345")
	waitFor(t, "the log", 10*time.Second, func() bool { return log.lines("quota exceeded") >= 2 })
	r.must("/behind", "", persistent) // applied behind what the others have logged
	if n := log.lines("quota exceeded"); n != 2 || log.lines(count) != 1 || log.lines(size) != 1 {
		t.Errorf("%d lines, count %d, bytes %d; want one of each", n, log.lines(count), log.lines(size))
	}
}

// Goal: a limit is logged again after a while, and what is remembered stays bounded.
// Method: the log's own clock set back, and more limits than it remembers.
func TestExcessLogForgets(t *testing.T) {
	s, log := startLogged(t, Config{})
	var l excessLog
	x := []znode.Excess{{Path: "/a", Limit: "count", Used: 2, Max: 1}}
	l.log(s, x)
	l.log(s, x)
	l.told[excessKey{"/a", "count"}] -= excessEvery
	l.log(s, x)
	if n := log.lines("path=/a"); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
	for i := range 2 * excessesKept {
		l.log(s, []znode.Excess{{Path: fmt.Sprint("/", i), Limit: "bytes"}})
		if len(l.told) > excessesKept {
			t.Fatalf("%d limits are remembered", len(l.told))
		}
	}
}
