package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: one-shot watches survive a cut: exactly one event for each change, none for
// what did not change, and that watch still works.
func TestC041OneShotsSurviveACut(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c, ctx := f.client(t, nil), t.Context()
		for _, p := range []string{"/a", "/c", "/d"} {
			mustCreate(t, c, p, znode.Persistent)
		}
		_, _, a, err1 := c.GetW(ctx, "/a")
		_, found, b, err2 := c.ExistsW(ctx, "/b")
		_, _, ch, err3 := c.ChildrenW(ctx, "/c")
		_, _, d, err4 := c.GetW(ctx, "/d")
		_, _, dc, err5 := c.ChildrenW(ctx, "/d")
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil || found {
			t.Fatal(found, err)
		}
		f.with(func() { f.members["a:1"].down = true })
		f.cutAll()
		f.do(t, &znode.SetData{Path: "/a", Version: -1})
		f.do(t, &znode.Create{Path: "/b", ACL: znode.OpenACL})
		f.do(t, &znode.Create{Path: "/c/x", ACL: znode.OpenACL})
		time.Sleep(3 * time.Second)
		f.with(func() { f.members["a:1"].down = false })
		for _, want := range []struct {
			w  OneShot
			ev wire.Event
		}{{a, wire.Event{Type: znode.EventDataChanged, Path: "/a"}}, {b, wire.Event{Type: znode.EventCreated, Path: "/b"}},
			{ch, wire.Event{Type: znode.EventChildrenChanged, Path: "/c"}}} {
			if ev := next(t, want.w); ev.Type != want.ev.Type || ev.Path != want.ev.Path {
				t.Errorf("got %+v, want %+v", ev, want.ev)
			}
			if _, more := <-want.w.C; more {
				t.Errorf("a second event for %s", want.ev.Path)
			}
		}
		synctest.Wait()
		if len(d.C)+len(dc.C) != 0 {
			t.Error("an event for /d, which did not change")
		}
		f.do(t, &znode.SetData{Path: "/d", Version: -1})
		next(t, d)
		dc.Cancel()
		if _, open := <-dc.C; open {
			t.Error("a cancelled watch is not closed")
		}
		synctest.Wait()
		f.with(func() {
			for fc := range f.conns {
				if n := len(fc.watches.data) + len(fc.watches.child); n != 0 {
					t.Errorf("%d watches left at the server", n)
				}
			}
		})
	})
}

// Goal: a persistent watch gets every event of a disconnect, or a gap where the history
// does not reach back; later changes give events.
func TestC043PersistentWatches(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		bubble(t, []string{"a:1", "b:1"}, func(t *testing.T, f *fakeEnsemble) {
			c := f.client(t, nil)
			for _, p := range []string{"/t", "/t/b", "/t/c", "/t/d"} {
				mustCreate(t, c, p, znode.Persistent)
			}
			got, end := collect(t, c, "/t", WatchOptions{Recursive: true})
			f.with(func() { f.members["a:1"].down, f.members["b:1"].down = true, true })
			f.cutAll()
			f.do(t, &znode.Create{Path: "/t/a", ACL: znode.OpenACL})
			f.do(t, &znode.SetData{Path: "/t/b", Version: -1})
			f.do(t, &znode.Delete{Path: "/t/c", Version: -1})
			f.do(t, &znode.Delete{Path: "/t/d", Version: -1})
			f.do(t, &znode.Create{Path: "/t/d", ACL: znode.OpenACL})
			time.Sleep(3 * time.Second)
			f.with(func() {
				f.members["b:1"].down = false
				if forgotten {
					f.forgotten = f.tree.LastZxid()
				}
			})
			awaitState(t, c.Session(), Connected)
			time.Sleep(2 * time.Second)
			want := []wire.Event{{Type: znode.EventCreated, Path: "/t/a"}, {Type: znode.EventDataChanged, Path: "/t/b"},
				{Type: znode.EventDeleted, Path: "/t/c"}, {Type: znode.EventDeleted, Path: "/t/d"}, {Type: znode.EventCreated, Path: "/t/d"}}
			if forgotten {
				want = []wire.Event{{Type: wire.EventGap, Path: "/t"}}
			}
			if events := plain(got()); !slices.Equal(events, want) {
				t.Errorf("after the cut: %v, want %v", events, want)
			}
			f.do(t, &znode.SetData{Path: "/t/b", Version: -1})
			if events := plain(got()); len(events) != 1 || events[0].Path != "/t/b" {
				t.Errorf("later: %v", events)
			}
			if err := end(); err != nil {
				t.Errorf("the loop ended with %v", err)
			}
		})
	}
}

// Goal: cuts at any byte neither lose nor repeat an event, also inside a transaction of
// several. Method: random cuts while somebody else commits multis; every stream must
// see exactly the history that concerns it. Replay: set seed.
func TestStreamsAreExactOverRandomCuts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		for _, p := range []string{"/a", "/a/b", "/z"} {
			mustCreate(t, c, p, znode.Persistent)
		}
		type watch struct {
			path string
			o    WatchOptions
			got  func() []wire.Event
			end  func() error
		}
		var all []watch
		for _, p := range []string{"/", "/a", "/a/b"} {
			for _, recursive := range []bool{false, true} {
				w := watch{path: p, o: WatchOptions{Recursive: recursive}}
				w.got, w.end = collect(t, c, p, w.o)
				all = append(all, w)
			}
		}
		from := f.tree.LastZxid()
		for range 400 {
			f.with(func() {
				f.apply(&znode.Txn{Op: &znode.Multi{Ops: []znode.Op{
					&znode.SetData{Path: "/a", Version: -1}, &znode.Create{Path: "/a/n", ACL: znode.OpenACL},
					&znode.SetData{Path: "/a/b", Version: -1}, &znode.Delete{Path: "/a/n", Version: -1},
					&znode.SetData{Path: "/a/b", Version: -1}, &znode.SetData{Path: "/z", Version: -1},
				}}})
				for fc := range f.conns {
					if n := len(fc.pending); n > 0 && rnd.IntN(4) == 0 {
						fc.pending = fc.pending[:rnd.IntN(n+1)]
						fc.cutAfterPending = true
					}
				}
			})
			time.Sleep(time.Duration(rnd.Int64N(int64(100 * time.Millisecond))))
		}
		time.Sleep(time.Minute)
		if n := c.Stats().Resumes; n < 20 {
			t.Errorf("only %d resumes", n)
		}
		for _, w := range all {
			want := newFakeWatches()
			if w.o.Recursive {
				want.recursive[w.path] = true
			} else {
				want.persistent[w.path] = true
			}
			var expect []wire.Event
			for i := range f.history {
				if f.history[i].Zxid > from {
					want.match(&f.history[i], func(e wire.Event) { expect = append(expect, e) })
				}
			}
			if events := w.got(); !slices.Equal(events, expect) {
				t.Errorf("%s %+v: %d events, want %d", w.path, w.o.Recursive, len(events), len(expect))
			}
			_ = w.end()
		}
	})
}

// Goal: a stream from a zxid gets the history first, and older watches that overlap are
// not told twice, nor a one-shot that was set after it.
func TestWatchFromZxid(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		mustCreate(t, c, "/h", znode.Persistent)
		from := f.tree.LastZxid()
		old, endOld := collect(t, c, "/", WatchOptions{Recursive: true})
		for range 3 {
			f.do(t, &znode.SetData{Path: "/h", Version: -1})
		}
		_, _, one, err := c.GetW(t.Context(), "/h")
		if err != nil {
			t.Fatal(err)
		}
		armed := int64(0)
		got, end := collect(t, c, "/h", WatchOptions{FromZxid: from, Armed: func(z int64) { armed = z }})
		f.cutAll()
		time.Sleep(time.Second)
		f.do(t, &znode.SetData{Path: "/h", Version: -1})
		if n := len(old()); n != 4 {
			t.Errorf("the older watch has %d events, want 4", n)
		}
		events := got()
		if len(events) != 4 || armed != from || !slices.IsSortedFunc(events, func(a, b wire.Event) int { return int(a.Zxid - b.Zxid) }) {
			t.Errorf("the new one has %v", events)
		}
		if ev := next(t, one); ev.Zxid != events[3].Zxid {
			t.Errorf("the one-shot got %+v", ev)
		}
		_, _ = end(), endOld()
	})
}

// Goal: while a history comes, news of older watches that overlap neither get lost nor
// doubled, for anybody. Method: the server commits more between the ping and the
// request; the old watches cover all, a part, or nothing of the new one.
func TestHistoryMixedWithNews(t *testing.T) {
	for _, older := range []string{"/", "/h", "/h/k", "/other"} {
		bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
			c := f.client(t, nil)
			for _, p := range []string{"/h", "/h/k", "/other"} {
				mustCreate(t, c, p, znode.Persistent)
			}
			from := f.tree.LastZxid()
			old, _ := collect(t, c, older, WatchOptions{Recursive: true})
			_, _, one, err := c.GetW(t.Context(), "/h/k")
			if err != nil {
				t.Fatal(err)
			}
			commit := func() {
				f.apply(&znode.Txn{Op: &znode.Multi{Ops: []znode.Op{
					&znode.SetData{Path: "/h", Version: -1}, &znode.SetData{Path: "/h/k", Version: -1},
					&znode.SetData{Path: "/h/k", Version: -1}, &znode.SetData{Path: "/other", Version: -1},
				}}})
			}
			f.with(func() {
				f.before = func(_ *fakeConn, req *wire.Request) verdict {
					if req.Op == wire.OpRewatch {
						commit()
						commit()
					}
					return goOn
				}
			})
			got, _ := collect(t, c, "/h", WatchOptions{Recursive: true, FromZxid: from})
			f.with(commit)
			check := func(path string, events []wire.Event) {
				w := newFakeWatches()
				w.recursive[path] = true
				var want []wire.Event
				for i := range f.history {
					if f.history[i].Zxid > from {
						w.match(&f.history[i], func(e wire.Event) { want = append(want, e) })
					}
				}
				if !slices.Equal(events, want) {
					t.Errorf("older %s: watch on %s has %v, want %v", older, path, events, want)
				}
			}
			check("/h", got())
			check(older, old())
			if ev := next(t, one); ev.Zxid != from+1 {
				t.Errorf("the one-shot got %+v", ev)
			}
		})
	}
}

// Goal: a consumer that stops reading blocks nobody and finds a gap; with the session a
// stream ends with its error.
func TestSlowConsumerGetsAGap(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		mustCreate(t, c, "/a", znode.Persistent)
		proceed := make(chan struct{})
		var events []wire.Event
		ended := make(chan error, 1)
		go func() {
			var last error
			for ev, err := range c.Watch(context.Background(), "/a", WatchOptions{}) {
				if last = err; err == nil {
					events = append(events, ev)
				}
				<-proceed
			}
			ended <- last
		}()
		synctest.Wait()
		for range 3 * streamMax { // the loop may have taken one batch before it blocked
			f.do(t, &znode.SetData{Path: "/a", Version: -1})
		}
		if _, _, err := c.Get(t.Context(), "/a", ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		close(proceed)
		synctest.Wait()
		if i := slices.IndexFunc(events, func(e wire.Event) bool { return e.Type == wire.EventGap }); i < 0 || events[i].Path != "/a" {
			t.Fatalf("no gap among %d events", len(events))
		}
		if last := events[len(events)-1].Zxid; last != f.tree.LastZxid() {
			t.Fatalf("the last event has zxid %d, not %d", last, f.tree.LastZxid())
		}
		f.expireAll()
		if err := <-ended; !errors.Is(err, znode.SessionExpired) {
			t.Fatalf("the stream ended with %v", err)
		}
	})
}

// Goal: watches on one path share the server's registration: cancelling one must not
// take it from another, not even from one whose request is on its way.
func TestWatchesShareARegistration(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		mustCreate(t, c, "/a", znode.Persistent)
		for i := range 100 {
			_, _, first, err := c.GetW(t.Context(), "/a")
			if err != nil {
				t.Fatal(err)
			}
			second := make(chan OneShot)
			go func() {
				_, _, w, err := c.GetW(t.Context(), "/a")
				if err != nil {
					t.Error(err)
				}
				second <- w
			}()
			if i%2 == 0 {
				synctest.Wait()
			}
			first.Cancel()
			w := <-second
			synctest.Wait()
			f.do(t, &znode.SetData{Path: "/a", Data: fmt.Append(nil, i), Version: -1})
			if ev := next(t, w); ev.Type != znode.EventDataChanged {
				t.Fatalf("round %d: %+v", i, ev)
			}
		}
	})
}

// Goal: Notify tells once what C tells, whether it is asked before or after, and takes
// no goroutine. Method: an event, a Cancel and the end of the session, each with Notify
// before and after.
func TestNotify(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		mustCreate(t, c, "/n", znode.Persistent)
		type outcome struct {
			ev wire.Event
			ok bool
		}
		watch := func() (OneShot, func() []outcome) {
			t.Helper()
			_, _, w, err := c.GetW(t.Context(), "/n")
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan outcome, 2)
			return w, func() (all []outcome) {
				w.Notify(func(ev wire.Event, ok bool) { told <- outcome{ev, ok} })
				synctest.Wait()
				for len(told) > 0 {
					all = append(all, <-told)
				}
				return all
			}
		}
		ends := []struct {
			name string
			end  func(w OneShot)
			ok   bool
		}{
			{"an event", func(OneShot) { _, _ = c.Set(t.Context(), "/n", nil, -1) }, true},
			{"Cancel", func(w OneShot) { w.Cancel() }, false},
			{"Close", func(OneShot) { c.Close() }, false},
		}
		for _, e := range ends {
			before, asked := watch()
			if got := asked(); len(got) != 0 {
				t.Errorf("%s: told %v before it", e.name, got)
			}
			after, ask := watch()
			told := make(chan outcome, 2)
			before.Notify(func(ev wire.Event, ok bool) { told <- outcome{ev, ok} })
			e.end(before)
			synctest.Wait()
			if e.name == "Cancel" {
				after.Cancel()
			}
			if len(told) != 1 {
				t.Fatalf("%s: told %d times, want once", e.name, len(told))
			}
			for _, got := range append(ask(), <-told) {
				if got.ok != e.ok || e.ok && (got.ev.Type != znode.EventDataChanged || got.ev.Path != "/n") {
					t.Errorf("%s: told %+v", e.name, got)
				}
			}
			if ev, ok := <-after.C; ok != e.ok || ok && ev.Path != "/n" {
				t.Errorf("%s: C has %v, %v", e.name, ev, ok)
			}
		}
	})
}
