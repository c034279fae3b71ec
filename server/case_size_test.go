package server

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: what was accepted can be read through every door; data that is
// too long for that is refused, and a message that is too long costs its connection and
// not its session. Method: data of the bound and one byte more in each operation, then
// messages of limit-1, limit and limit+1 bytes, through each door.
func TestC069WriteAndReadLimitsAgree(t *testing.T) {
	const limit = 64 << 10
	for protocol, longest := range map[string]int{subprotocolJute: limit, subprotocolJSON: limit*4/3 + 4096, zooKeeper: limit} {
		s := startServer(t, Config{MaxMessageBytes: limit, ZKMaxReplyBytes: limit})
		r := openAs(t, s, protocol, 30*time.Second)
		r.must("/d", "", persistent)
		dataLimit(t, s, r)
		messageLimit(t, s, protocol, r, longest)
		if got := figureOf(s, "max message bytes"); got != fmt.Sprint(limit) {
			t.Errorf("status says the limit is %q", got)
		}
	}
}

// dataLimit stores as much data as a znode holds, in every way, and one byte more.
func dataLimit(t *testing.T, s *Server, r *rawClient) {
	t.Helper()
	for _, over := range []int{0, 1} {
		data := bytes.Repeat([]byte("x"), int(wire.DataMax(s.cfg.MaxMessageBytes))+over)
		create := &znode.Create{Path: "/d/c", Data: data, ACL: znode.OpenACL}
		set := &znode.SetData{Path: "/d", Data: data, Version: -1}
		for _, op := range []znode.Op{create, &znode.Delete{Path: "/d/c", Version: -1}, set, &znode.Multi{Ops: []znode.Op{set}}, &znode.Multi{Ops: []znode.Op{create}}} {
			if _, harmless := op.(*znode.Delete); harmless && over > 0 {
				continue
			}
			want := []znode.Error{znode.OK, znode.BadArguments}[over]
			if reply := r.call(wire.Request{Op: wire.OpOf(op), Body: op}); reply.Err != want {
				t.Errorf("%T of %d bytes of data: %v, want %v", op, len(data), reply.Err, want)
			}
		}
		if over > 0 {
			continue
		}
		for _, protocol := range everyDoor {
			back := openAs(t, s, protocol, 0)
			for _, path := range []string{"/d", "/d/c"} {
				if got, e := back.get(path); e != znode.OK || !bytes.Equal(got.Data, data) {
					t.Errorf("%s: %s can't be read: %v", protocol, path, e)
				}
			}
			// Two of them are more than a reply may be: an error that says so.
			read := wire.ReadOp{Op: wire.OpGetData, Path: "/d"}
			many := back.call(wire.Request{Op: wire.OpMultiRead, Body: &wire.MultiRead{Ops: []wire.ReadOp{read, read}}})
			if many.Err != znode.BadArguments || protocol == subprotocolJSON && !strings.Contains(many.Detail, "max-message-bytes") {
				t.Errorf("%s: a reply of twice the limit: %v %q", protocol, many.Err, many.Detail)
			}
		}
	}
}

// messageLimit sends messages around the longest that there may be.
func messageLimit(t *testing.T, s *Server, protocol string, r *rawClient, longest int) {
	t.Helper()
	before := r.stat("/d").Version
	for size := longest - 1; size <= longest+1; size++ {
		q := wire.Request{Xid: r.xid + 1, Op: wire.OpSetData, Body: &znode.SetData{Path: "/d", Version: -1}}
		msg := r.codec.AppendRequest(nil, &q)
		msg = append(msg, bytes.Repeat([]byte(" "), size-len(msg))...) // ignored in either encoding
		r.xid++
		r.sent[r.xid] = wire.OpSetData
		r.write(msg)
		if size <= longest {
			if reply := r.next(); reply.Err != znode.OK {
				t.Fatalf("%s: %d bytes: %v", protocol, size, reply.Err)
			}
			continue
		}
		r.wantClosed("a message that is too big", closeTooBig)
		r = resumeRaw(t, s, protocol, r.session)
		if got, e := r.get("/d"); e != znode.OK || got.Stat.Version != before+2 {
			t.Errorf("%s: behind the resume: %v %v", protocol, got, e)
		}
	}
}

// figureOf is one figure of the server's status.
func figureOf(s *Server, name string) string {
	for _, f := range s.status().Figures {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Goal: a znode with very many children stays usable: its list comes in pages, asked for
// at once it is one clear error, or for ZooKeeper's clients the list, its Stat is exact and quick, another session does not
// notice, and writes go on while a snapshot is taken. Method: 100,000 children with names
// of 40 characters.
func TestWideNode(t *testing.T) {
	const count = 100_000
	s := startServer(t, Config{})
	r := openRaw(t, s)
	r.must("/big", strings.Repeat("d", 100_000), persistent)
	name := func(i int) string { return fmt.Sprintf("%s%08d", strings.Repeat("c", 32), i) }
	fill(t, r, "/big", count, persistent, name)

	t.Run("C071HugeChildList", func(t *testing.T) { listWide(t, s, count, name) })
	t.Run("C133ExistsAndCounts", func(t *testing.T) {
		worst := time.Duration(0)
		for i := range 50 {
			began := time.Now()
			st := r.stat("/big")
			worst = max(worst, time.Since(began))
			if st.NumChildren != count || st.Cversion != count+int32(2*i) {
				t.Fatalf("round %d: %+v", i, st)
			}
			r.must("/big/extra", "", persistent)
			if st := r.stat("/big"); st.NumChildren != count+1 {
				t.Fatalf("round %d: %+v", i, st)
			}
			r.delete("/big/extra")
		}
		began := time.Now()
		reply := r.call(wire.Request{Op: wire.OpGetAllChildrenNumber, Body: &wire.PathOnly{Path: "/big"}})
		if reply.Body.(*wire.CountReply).Count != count {
			t.Errorf("descendants: %+v", reply.Body)
		}
		t.Logf("slowest exists %v; counting descendants took %v", worst, time.Since(began))
		if worst > time.Second {
			t.Errorf("an exists took %v", worst)
		}
	})
	t.Run("C139WritesGoOnDuringASnapshot", func(t *testing.T) {
		writes := 0
		info, err := s.writeSnapshot(writerFunc(func(p []byte) (int, error) {
			began := time.Now()
			if e := r.set("/big", fmt.Sprint(writes)); e != znode.OK {
				t.Fatal(e)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a write during the snapshot took %v", took)
			}
			writes++
			return len(p), nil
		}))
		if err != nil || writes < 10 || info.Zxid >= s.store.LastZxid() {
			t.Errorf("%d writes during the snapshot of zxid %d, now %d: %v", writes, info.Zxid, s.store.LastZxid(), err)
		}
	})
}

// writerFunc is an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var _ io.Writer = writerFunc(nil)

func listWide(t *testing.T, s *Server, count int, name func(int) string) {
	other := openRaw(t, s)
	for _, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		for range 3 { // asking again is no loop
			reply := r.call(wire.Request{Op: wire.OpGetChildren, Body: &wire.PathWatch{Path: "/big"}})
			if protocol == zooKeeper {
				if b, ok := reply.Body.(*wire.ChildrenReply); !ok || len(b.Names) != count {
					t.Errorf("the whole list: %v", reply.Err)
				}
			} else if reply.Err != znode.BadArguments || protocol == subprotocolJSON && !strings.Contains(reply.Detail, "pages") {
				t.Errorf("%s: the whole list: %v %q", protocol, reply.Err, reply.Detail)
			}
			began := time.Now()
			other.set("/big", "")
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("another session waited %v", took)
			}
		}
		if protocol == zooKeeper {
			continue // has no pages
		}
		seen, pages, after := 0, 0, ""
		for more := true; more; pages++ {
			reply := r.call(wire.Request{Op: wire.OpList, Body: &wire.List{Path: "/big", After: after, Stats: pages%2 == 1, Limit: int32(pages%2) * 500}})
			if reply.Err != znode.OK {
				t.Fatalf("%s: page %d: %v %s", protocol, pages, reply.Err, reply.Detail)
			}
			page := reply.Body.(*wire.ListReply)
			if len(page.Names) == 0 || pages%2 == 1 && (len(page.Stats) != len(page.Names) || len(page.Names) > 500) {
				t.Fatalf("%s: page %d has %d names and %d stats", protocol, pages, len(page.Names), len(page.Stats))
			}
			for _, got := range page.Names {
				if got != name(seen) {
					t.Fatalf("%s: name %d is %s, want %s", protocol, seen, got, name(seen))
				}
				seen++
			}
			after, more = page.Names[len(page.Names)-1], page.More
		}
		if seen != count {
			t.Errorf("%s: %d names on %d pages, want %d", protocol, seen, pages, count)
		}
	}
}

// Goal: a full member still serves and can be emptied. Method: a small bound on data;
// fill it; then every kind of request; then delete a part and write again.
func TestC073FullStateStillServes(t *testing.T) {
	const limit = 1 << 20
	s := startServer(t, Config{MaxDataBytes: limit})
	r, old := openRaw(t, s), openAs(t, s, subprotocolJSON, 30*time.Second)
	r.must("/f", "", persistent)
	old.must("/f/old", strings.Repeat("o", 1000), ephemeral)
	chunk := strings.Repeat("x", 10_000)
	full := 0
	for ; full < 2*limit/len(chunk); full++ {
		if _, e := r.create(fmt.Sprintf("/f/%04d", full), chunk, persistent); e != znode.OK {
			if e != znode.QuotaExceeded {
				t.Fatalf("create %d: %v, want QuotaExceeded", full, e)
			}
			break
		}
	}
	counts := s.store.Counts()
	if got := counts.DataBytes + znodeBytes*counts.Znodes; got < limit || got > limit+3*int64(len(chunk)) {
		t.Errorf("full at %d bytes, the bound is %d", got, limit)
	}
	want := func(what string, got, want znode.Error) {
		t.Helper()
		if got != want {
			t.Errorf("while full, %s: %v, want %v", what, got, want)
		}
	}
	want("set that grows", r.set("/f/0000", chunk+"y"), znode.QuotaExceeded)
	want("set of the same size", r.set("/f/0000", chunk), znode.OK)
	want("growing multi", r.multi(&znode.Create{Path: "/g", ACL: znode.OpenACL}).Err, znode.QuotaExceeded)
	want("set of nothing", r.set("/f/0001", ""), znode.OK)
	_, e := r.get("/f/0002")
	want("get", e, znode.OK)
	want("ping", r.call(wire.Request{Op: wire.OpPing}).Err, znode.OK)
	want("renew", r.call(wire.Request{Op: wire.OpRenew, Body: &wire.Renew{}}).Err, znode.OK)
	for _, protocol := range everyDoor {
		next := openAs(t, s, protocol, 0)
		want("close", next.call(wire.Request{Op: wire.OpCloseSession}).Err, znode.OK)
	}
	old = resumeRaw(t, s, subprotocolJute, old.session)
	want("close of an owner", old.call(wire.Request{Op: wire.OpCloseSession}).Err, znode.OK)
	if r.stat("/f/old") != nil {
		t.Error("the ephemeral of a closed session is left")
	}
	if _, text := fetch(t, "GET", "http://"+s.Addr().String()+"/metrics", nil); !strings.Contains(text, "tenure_data_bytes") {
		t.Error("the metrics don't show the bytes of data")
	}
	for i := range full / 5 {
		want("delete", r.delete(fmt.Sprintf("/f/%04d", i)), znode.OK)
	}
	if _, e := r.create("/again", chunk, persistent); e != znode.OK {
		t.Errorf("behind the deletes: %v", e)
	}
}

// Goal: many reads in one request cost no more than a reply may be. Method: a thousand
// reads of the longest data, and of a list, measured by what is allocated meanwhile.
func TestMultiReadIsBounded(t *testing.T) {
	const limit, reads, allocated = 64 << 10, 1000, 10 << 20
	s := startServer(t, Config{MaxMessageBytes: limit, ZKMaxReplyBytes: 2 * limit})
	r := openRaw(t, s)
	r.must("/d", strings.Repeat("x", int(wire.DataMax(s.cfg.MaxMessageBytes))), persistent)
	fill(t, r, "/d", 300, persistent, func(i int) string { return fmt.Sprintf("%040d", i) })
	for _, protocol := range everyDoor {
		for _, op := range []wire.Op{wire.OpGetData, wire.OpGetChildren} {
			c := openAs(t, s, protocol, 0)
			list := slices.Repeat([]wire.ReadOp{{Op: op, Path: "/d"}}, reads)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			reply := c.call(wire.Request{Op: wire.OpMultiRead, Body: &wire.MultiRead{Ops: list}})
			runtime.ReadMemStats(&after)
			if reply.Err != znode.BadArguments || protocol == subprotocolJSON && !strings.Contains(reply.Detail, "max-message-bytes") {
				t.Errorf("%s, %v: %v %q", protocol, op, reply.Err, reply.Detail)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > allocated {
				t.Errorf("%s, %v: %d MiB allocated", protocol, op, n>>20)
			}
		}
	}
}
