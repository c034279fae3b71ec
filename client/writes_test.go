package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a create whose reply is lost is applied once, and the caller sees success.
// Method: every create of a thousand rounds is applied, its reply dropped and the
// connection cut; for plain, ephemeral and sequential znodes.
func TestC037ReplyLost(t *testing.T) {
	const rounds = 1000
	modes := []znode.Mode{{}, {Kind: znode.Ephemeral}, {Sequential: true}, {Kind: znode.Ephemeral, Sequential: true}}
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		s := c.Session()
		mustCreate(t, c, "/p", znode.Persistent)
		dropped := map[int64]bool{}
		f.with(func() {
			f.after = func(_ *fakeConn, req *wire.Request) verdict {
				if _, ok := req.Body.(*znode.Create); ok && !dropped[req.Seq] {
					dropped[req.Seq] = true
					return cut
				}
				return goOn
			}
		})
		for i := range rounds {
			path := fmt.Sprintf("/p/n%04d-", i)
			got, stat, err := c.Create(t.Context(), path, nil, CreateOptions{Mode: modes[i%len(modes)]})
			if err != nil || !strings.HasPrefix(got, path) || stat.Czxid == 0 {
				t.Fatalf("round %d: %q, %+v, %v", i, got, stat, err)
			}
		}
		names, stat, err := c.Children(t.Context(), "/p", ReadOptions{})
		if err != nil || len(names) != rounds || stat.Cversion != rounds || len(dropped) != rounds {
			t.Fatalf("%d children, cversion %d, %d replies dropped: %v", len(names), stat.Cversion, len(dropped), err)
		}
		if c.Session() != s {
			t.Fatal("the session was lost")
		}
		if got := c.Stats(); got.Resent < rounds {
			t.Fatalf("stats %+v", got)
		}
	})
}

// Goal: what a context that ends does to a write depends on whether it was sent; one
// that was keeps its place and is sent again.
func TestContextEndsDuringWrite(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, func(o *Options) { o.Window = 1 })
		f.with(func() {
			f.before = func(_ *fakeConn, req *wire.Request) verdict {
				if _, ok := req.Body.(*znode.Create); ok {
					return ignore
				}
				return goOn
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		unsent := make(chan error, 1)
		go func() {
			time.Sleep(time.Millisecond) // behind the other, and the window is 1
			_, _, err := c.Create(ctx, "/unsent", nil, CreateOptions{})
			unsent <- err
		}()
		_, _, err := c.Create(ctx, "/sent", nil, CreateOptions{})
		if !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("write on its way: %v", err)
		}
		err = <-unsent
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("write that was never sent: %v", err)
		}
		f.with(func() { f.before = nil })
		f.cutAll()
		time.Sleep(time.Second)
		for path, want := range map[string]bool{"/sent": true, "/unsent": false} {
			if _, found, err := c.Exists(t.Context(), path, ReadOptions{}); found != want || err != nil {
				t.Fatalf("%s: %v, %v", path, found, err)
			}
		}
	})
}

// Goal: a long outage with impatient callers does not fill the queue.
func TestWithdrawnCallsAreDropped(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		f.with(func() { f.members["a:1"].down = true })
		f.cutAll()
		awaitState(t, c.Session(), Suspended)
		for range 5000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, _, err := c.Get(ctx, "/", ReadOptions{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		if n := c.queue.len(); n > 200 {
			t.Fatalf("%d calls in the queue, all withdrawn", n)
		}
	})
}

// Goal: what is too large is refused here by its exact size, or by the server, and the
// session lives.
func TestC069RequestSize(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		mustCreate(t, c, "/a", znode.Persistent)
		most := int(wire.DataMax(requestBytesMaxDefault))
		if _, err := c.Set(t.Context(), "/a", make([]byte, most), -1); err != nil {
			t.Fatalf("a request of the limit: %v", err)
		}
		_, err := c.Set(t.Context(), "/a", make([]byte, most+1), -1)
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "1048488 bytes of data are over the limit of 1048487") {
			t.Fatalf("a byte more: %v", err)
		}
		long := "/" + strings.Repeat("n", 200)
		full := len(codec.AppendRequest(nil, &wire.Request{Op: wire.OpSetData, Seq: 1, Body: &znode.SetData{Path: long}}))
		_, err = c.Set(t.Context(), long, make([]byte, requestBytesMaxDefault-full+1), -1)
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "1048576 bytes are over the limit of 1048575") {
			t.Fatalf("a message of a byte more: %v", err)
		}
		data, _, err := c.Get(t.Context(), "/a", ReadOptions{})
		if err != nil || len(data) != most {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		f.with(func() {
			f.before = func(fc *fakeConn, req *wire.Request) verdict {
				if b, ok := req.Body.(*znode.SetData); ok && len(b.Data) > 100_000 {
					fc.closeWith(websocket.CloseMessageTooBig)
					return ignore
				}
				return goOn
			}
		})
		s := c.Session()
		if _, err = c.Set(t.Context(), "/a", make([]byte, 200_000), -1); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("refused by the server: %v", err)
		}
		if _, err = c.Set(t.Context(), "/a", []byte("x"), -1); err != nil || c.Session() != s {
			t.Fatalf("afterwards: %v", err)
		}
	})
}

// Goal: every operation answers, errors carry code, operation and path, and a multi
// says which op failed.
func TestOperations(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c, ctx := f.client(t, nil), t.Context()
		mustCreate(t, c, "/a", znode.Persistent)
		_, _, err := c.Create(ctx, "/a", nil, CreateOptions{})
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, znode.NodeExists) || e.Op != "create" || e.Path != "/a" {
			t.Fatalf("create again: %v", err)
		}
		if _, err := c.Set(ctx, "/a", []byte("1"), 7); !errors.Is(err, znode.BadVersion) {
			t.Fatalf("set: %v", err)
		}
		stat, err := c.Set(ctx, "/a", []byte("1"), 0)
		if err != nil || stat.Version != 1 {
			t.Fatalf("set: %+v, %v", stat, err)
		}
		if data, _, err := c.Get(ctx, "/a", ReadOptions{}); !bytes.Equal(data, []byte("1")) || err != nil {
			t.Fatalf("get: %q, %v", data, err)
		}
		res, err := c.Multi(ctx, &znode.Create{Path: "/b"}, &znode.Check{Path: "/a", Version: 9}, &znode.Delete{Path: "/a", Version: -1})
		if !errors.As(err, &e) || e.Code != znode.BadVersion || e.Path != "/a" || len(res) != 3 ||
			res[0].Err != znode.OK || res[1].Err != znode.BadVersion || res[2].Err != znode.RuntimeInconsistency {
			t.Fatalf("multi: %+v, %v", res, err)
		}
		res, err = c.Multi(ctx, &znode.Create{Path: "/a/s", Mode: znode.Mode{Sequential: true}}, &znode.SetData{Path: "/a", Version: 1})
		if err != nil || res[0].Path != "/a/s0000000000" || res[1].Stat.Version != 2 {
			t.Fatalf("multi: %+v, %v", res, err)
		}
		if _, err := c.SetACL(ctx, "/a", []znode.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}}, -1); err != nil {
			t.Fatal(err)
		}
		if acl, _, err := c.GetACL(ctx, "/a"); err != nil || len(acl) != 1 || acl[0].Perms != 1 {
			t.Fatalf("getACL: %v, %v", acl, err)
		}
		if n, err := c.CountDescendants(ctx, "/a"); n != 1 || err != nil {
			t.Fatalf("count: %d, %v", n, err)
		}
		if err := c.Sync(ctx, "/a"); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(ctx, "/none", -1); !errors.Is(err, znode.NoNode) {
			t.Fatalf("delete: %v", err)
		}
		if _, _, err := c.Get(ctx, "no/slash", ReadOptions{}); !errors.Is(err, znode.BadArguments) {
			t.Fatalf("bad path: %v", err)
		}
		if st, err := c.Status(ctx); err != nil || len(st.Figures) != 1 {
			t.Fatalf("status: %v, %v", st, err)
		}
		if ls, err := c.Sessions(ctx, 0, 0); err != nil || len(ls.Sessions) != 1 {
			t.Fatalf("sessions: %v, %v", ls, err)
		}
		if err := c.KillSession(ctx, 99); err != nil {
			t.Fatal(err)
		}
		if m, err := c.Members(ctx); err != nil || m.Cluster != 7 {
			t.Fatalf("members: %+v, %v", m, err)
		}
		_, errChange := c.ChangeMembers(ctx, wire.MemberStep{Kind: wire.MemberRemove, ID: 2})
		_, errTransfer := c.TransferLead(ctx, 2)
		if !errors.Is(errChange, znode.ReconfigInProgress) || !errors.Is(errTransfer, znode.ReconfigInProgress) {
			t.Fatalf("refused: %v, %v", errChange, errTransfer)
		}
		synctest.Wait()
	})
}

// Goal: Stat tells what a Stat record does not, below a chroot too, and that there is no
// znode. Method: one of each kind, without and with children.
func TestStatTellsLifetimes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		f.do(t, &znode.Create{Path: "/app", ACL: znode.OpenACL})
		c := f.client(t, func(o *Options) { o.Endpoints = []string{"a:1/app"} })
		for path, o := range map[string]CreateOptions{
			"/p": {}, "/e": {Mode: znode.Mode{Kind: znode.Ephemeral}}, "/c": {Mode: znode.Mode{Kind: znode.Container}},
			"/t": {Mode: znode.Mode{Kind: znode.TTL}, TTL: time.Hour},
		} {
			if _, _, err := c.Create(t.Context(), path, []byte("data"), o); err != nil {
				t.Fatal(err)
			}
			children := int32(0)
			if o.Mode.Kind != znode.Ephemeral {
				children = 2
				mustCreate(t, c, path+"/1", znode.Persistent)
				mustCreate(t, c, path+"/2", znode.Persistent)
			}
			want := znode.Lifetime{Kind: o.Mode.Kind, TTLMs: o.TTL.Milliseconds()}
			stat, life, err := c.Stat(t.Context(), path, ReadOptions{})
			if err != nil || life != want || stat.DataLength != 4 || stat.NumChildren != children {
				t.Errorf("%s: %+v %+v, %v; want %+v", path, stat, life, err, want)
			}
		}
		if _, _, err := c.Stat(t.Context(), "/none", ReadOptions{}); !errors.Is(err, znode.NoNode) || !strings.Contains(err.Error(), "stat /none") {
			t.Errorf("no znode: %v", err)
		}
	})
}
