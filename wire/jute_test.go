package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// Goal: the operation and the flags together say what is made, by ZooKeeper's table.
// Method: every operation with every flag from -1 to 8.
func TestJuteCreateFlags(t *testing.T) {
	p, e := znode.Mode{Kind: znode.Persistent}, znode.Mode{Kind: znode.Ephemeral}
	c, l := znode.Mode{Kind: znode.Container}, znode.Mode{Kind: znode.TTL}
	seq := func(m znode.Mode) *znode.Mode { m.Sequential = true; return &m }
	table := map[Op][]*znode.Mode{ // by flag from 0; nil is refused
		OpCreate:          {&p, &e, seq(p), seq(e), &p, &l, seq(l)},
		OpCreate2:         {&p, &e, seq(p), seq(e), &p, &l, seq(l)},
		OpCreateContainer: {&c, &c, seq(c), seq(c), &c, &l, seq(l)},
		OpCreateTTL:       {nil, nil, nil, nil, nil, &l, seq(l)},
	}
	for op, modes := range table {
		for flags := int32(-1); flags <= 8; flags++ {
			var want *znode.Mode
			if flags >= 0 && int(flags) < len(modes) {
				want = modes[flags]
			}
			record := putInt(raw(t, rawPath+rawData+rawOpen), flags)
			if op == OpCreateTTL {
				record = putLong(record, 1000)
			}
			alone, err := Jute{}.DecodeRequest(append(putInt(putInt(nil, 7), int32(op)), record...))
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				if alone.Err != znode.BadArguments || alone.Body != nil || alone.Detail == "" {
					t.Errorf("%v flags %d alone: %+v", op, flags, alone)
				}
				continue
			}
			if got, ok := alone.Body.(*znode.Create); !ok || got.Mode != *want {
				t.Errorf("%v flags %d alone: %+v, want %+v", op, flags, alone, *want)
			}
		}
	}
}

// Goal: in a multi, flags mean what they mean to ZooKeeper since 3.8.2: those of no mode
// and TTL modes without a lifetime refuse the whole, 4 makes a container of every create,
// and only createTTL leaves its flags to be judged in their turn. Method: every operation
// with every flag from -1 to 8.
func TestJuteCreateFlagsInMulti(t *testing.T) {
	p, e := znode.Mode{Kind: znode.Persistent}, znode.Mode{Kind: znode.Ephemeral}
	c, l := znode.Mode{Kind: znode.Container}, znode.Mode{Kind: znode.TTL}
	seq := func(m znode.Mode) *znode.Mode { m.Sequential = true; return &m }
	table := map[Op][]*znode.Mode{ // by flag from 0; nil refuses the multi
		OpCreate:          {&p, &e, seq(p), seq(e), &c},
		OpCreate2:         {&p, &e, seq(p), seq(e), &c},
		OpCreateContainer: {&c, &c, seq(c), seq(c), &c},
		OpCreateTTL:       {&p, &p, &p, &p, &p, &l, seq(l)},
	}
	for op, modes := range table {
		for flags := int32(-1); flags <= 8; flags++ {
			multi := putMultiHeader(putInt(putInt(nil, 7), int32(OpMulti)), op, -1)
			multi = putInt(append(multi, raw(t, rawPath+rawData+rawOpen)...), flags)
			ttl := int64(0)
			if op == OpCreateTTL {
				ttl = 1000
				multi = putLong(multi, ttl)
			}
			q, err := Jute{}.DecodeRequest(putMultiEnd(multi))
			if err != nil {
				t.Fatal(err)
			}
			var want *znode.Mode
			if flags >= 0 && int(flags) < len(modes) {
				want = modes[flags]
			}
			if op == OpCreateTTL && want != &l && flags != 6 { // no mode has this lifetime
				want, ttl = &p, -1
			}
			if want == nil {
				if q.Err != znode.MarshallingError || q.Body != nil || q.Detail == "" {
					t.Errorf("%v flags %d: %+v", op, flags, q)
				}
				continue
			}
			m, ok := q.Body.(*znode.Multi)
			if !ok {
				t.Errorf("%v flags %d: %+v", op, flags, q)
				continue
			}
			got := m.Ops[0].(*znode.Create)
			if got.Mode != *want || got.TTLMs != ttl || got.WantStat != (op != OpCreate || want.Kind == znode.Container) {
				t.Errorf("%v flags %d: %+v, want %+v", op, flags, got, *want)
			}
		}
	}
}

// Goal: a record that cannot be decoded is answered with an error and costs no more.
// Method: one broken record per rule; the request's number must still be there, and
// the words must name the value.
func TestJuteRecordErrors(t *testing.T) {
	tests := []struct {
		name, record string
		err          znode.Error
		detail       string
	}{
		{"C001 null path in get", "00000004 ffffffff 00", znode.MarshallingError, "path is null (-1)"},
		{"C001 null path in set", "00000005 ffffffff" + rawData + "ffffffff", znode.MarshallingError, "path is null"},
		{"negative length", "00000004 fffffffe 00", znode.MarshallingError, "length below -1 (-2)"},
		{"long length", "00000004 7fffffff 00", znode.MarshallingError, "length beyond the end of the message (2147483647)"},
		{"negative buffer", "00000005" + rawPath + "fffffff0 ffffffff", znode.MarshallingError, "length below -1 (-16)"},
		{"negative count", "00000007" + rawPath + "fffffffe 00000000", znode.MarshallingError, "count below -1 (-2)"},
		{"C067 count 2^31-1", "00000007" + rawPath + "7fffffff 00000000", znode.MarshallingError, "count beyond the end of the message (2147483647)"},
		{"truncated", "00000002" + rawPath + "ffff", znode.MarshallingError, "bytes missing (2)"},
		{"null vector in setWatches", "00000065 0000000000000000 00000000 ffffffff 00000000", znode.MarshallingError, "vector is null"},
		{"mode of addWatch", "0000006a" + rawPath + "00000002", znode.MarshallingError, "unknown mode of watch (2)"},
		{"type of watcher", "00000012" + rawPath + "00000006", znode.MarshallingError, "unknown type of watcher (6)"},
		{"setACL in multi", "0000000e 00000007 00 ffffffff" + rawPath + rawOpen + "00000000 ffffffff 01 ffffffff", znode.MarshallingError, "not an operation for multi (7)"},
		{"read in multi", "0000000e 00000004 00 ffffffff" + rawPath + "00 ffffffff 01 ffffffff", znode.MarshallingError, "not an operation for multi (4)"},
		{"multi in multi", "0000000e 0000000e 00 ffffffff ffffffff 01 ffffffff", znode.MarshallingError, "not an operation for multi (14)"},
		{"multi without end", "0000000e 00000002 00 ffffffff" + rawPath + "ffffffff", znode.MarshallingError, "bytes missing"},
		{"write in multiRead", "00000016 00000002 00 ffffffff" + rawPath + "ffffffff ffffffff 01 ffffffff", znode.MarshallingError, "not an operation for multiRead (2)"},
		{"check alone", "0000000d" + rawPath + "ffffffff", znode.Unimplemented, "check"},
		{"deleteContainer", "00000014" + rawPath, znode.Unimplemented, "deleteContainer"},
		{"createSession", "fffffff6", znode.Unimplemented, "op -10"},
		{"notification", "00000000", znode.Unimplemented, "op 0"},
		{"unknown", "00000063", znode.Unimplemented, "op 99"},
		{"unknown inside with", "000003e8 00000000 0000000000000000 0000000000000000 00000063", znode.Unimplemented, "op 99"},
		{"with inside with", "000003e8 00000000 0000000000000000 0000000000000000 000003e8", znode.MarshallingError, "with inside with"},
		{"bits of with", "000003e8 00000002 0000000000000000 0000000000000000 0000000b", znode.MarshallingError, "unknown bits in flags (2)"},
		{"seq of with", "000003e8 00000000 ffffffffffffffff 0000000000000000 0000000b", znode.MarshallingError, "seq is negative (-1)"},
		{"acked of with", "000003e8 00000000 0000000000000001 fffffffffffffffe 0000000b", znode.MarshallingError, "acked is negative (-2)"},
		{"truncated with", "000003e8 0000", znode.MarshallingError, "bytes missing (2)"},
	}
	for _, tt := range tests {
		q, err := Jute{}.DecodeRequest(raw(t, rawHeader+tt.record))
		if err != nil || q.Xid != 7 || q.Body != nil || q.Err != tt.err || !strings.Contains(q.Detail, tt.detail) {
			t.Errorf("%s: got %+v, %v; want %d with %q", tt.name, q, err, tt.err, tt.detail)
		}
	}
	if _, err := (Jute{}).DecodeRequest(raw(t, "00000007 000000")); err == nil {
		t.Error("a request without an operation was taken")
	}
}

// Goal: what ZooKeeper takes is taken.
// Method: bytes behind a record, booleans that are not 1, a null prefix, and a multi
// whose end has another type.
func TestJuteTolerance(t *testing.T) {
	tests := []struct {
		name, record string
		want         any
	}{
		{"trailing bytes", "00000004" + rawPath + "02 deadbeef", &PathWatch{"/a", true}},
		{"null prefix", "00000067 ffffffff", &PathOnly{""}},
		{"end of another type", "0000000e 00000001 05 00000000", &znode.Multi{}},
	}
	for _, tt := range tests {
		q, err := Jute{}.DecodeRequest(raw(t, rawHeader+tt.record))
		if err != nil || q.Err != znode.OK || !reflect.DeepEqual(q.Body, tt.want) {
			t.Errorf("%s: got %+v %+v, %v", tt.name, q, q.Body, err)
		}
	}
}

// Goal: events and pings have their reserved xids.
// Method: bytes written by hand; a ping that came with another xid.
func TestJuteReservedXids(t *testing.T) {
	event := Event{Type: znode.EventDataChanged, Path: "/a", Zxid: 99}
	want := raw(t, "ffffffff 0000000000000063 00000000 00000003 00000003"+rawPath)
	if got := (Jute{}).AppendEvent(nil, &event); !bytes.Equal(got, want) {
		t.Errorf("event %x, want %x", got, want)
	}
	got := Jute{}.AppendReply(nil, &Reply{Xid: 44, Op: OpPing, Zxid: 99})
	if want := raw(t, "fffffffe 0000000000000063 00000000"); !bytes.Equal(got, want) {
		t.Errorf("ping %x, want %x", got, want)
	}
	p, _, err := Jute{}.DecodeMessage(got, func(int32) (Op, bool) { return 0, false })
	if err != nil || p.Op != OpPing {
		t.Errorf("ping decoded to %+v, %v", p, err)
	}
	if _, _, err := (Jute{}).DecodeMessage(raw(t, rawReply), func(int32) (Op, bool) { return 0, false }); err == nil {
		t.Error("a reply that was not asked for was taken")
	}
}

// Goal: Java's clients get the 4 bytes behind the reply to addWatch without which they
// drop the connection.
// Method: the reply's bytes.
func TestC103AddWatchReplyHasABody(t *testing.T) {
	got := Jute{}.AppendReply(nil, &Reply{Xid: 7, Op: OpAddWatch, Zxid: 99, Body: &AddWatchReply{}})
	if want := raw(t, rawReply+"00000000"); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// Goal: a failing read does not hide those behind it, and generic clients can parse it.
// Method: the reply's bytes: type -1 with the code, and a terminator of type -1.
func TestC055MultiReadErrorIsOneResult(t *testing.T) {
	got := Jute{}.AppendReply(nil, &Reply{Xid: 7, Op: OpMultiRead, Zxid: 99, Body: &MultiReadReply{[]ReadResult{
		{Op: OpGetData, Err: znode.NoNode}, {Op: OpGetChildren, Children: ChildrenReply{Names: []string{"x"}}},
	}}})
	want := raw(t, rawReply+"ffffffff 00 ffffff9b ffffff9b 00000008 00 00000000 00000001 00000001'x' ffffffff 01 ffffffff")
	if !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// Goal: what is decoded stays as it was when the buffer is used again.
// Method: decode, overwrite the buffer, compare with a decoding of a fresh copy.
func TestNothingAliasesTheMessage(t *testing.T) {
	s := newSource(t)
	for name, c := range codecs {
		for range 500 {
			q := s.request()
			msg := c.AppendRequest(nil, q)
			got, err := c.DecodeRequest(msg)
			if err != nil {
				t.Fatal(err)
			}
			for i := range msg {
				msg[i] = 'x'
			}
			if !reflect.DeepEqual(&got, q) {
				t.Fatalf("%s: %+v changed to %+v", name, q.Body, got.Body)
			}
		}
	}
	stamp, proposals := znode.Stamp{}, list(s, s.proposal)
	var parts [][]byte
	for i := range proposals {
		parts = append(parts, AppendProposal(nil, &proposals[i]))
	}
	entry := AppendEntry(nil, stamp, parts)
	_, got, err := DecodeEntry(entry)
	for i := range entry {
		entry[i] = 'x'
	}
	if err != nil || !reflect.DeepEqual(got, proposals) {
		t.Fatalf("entry changed: %+v, %v", got, err)
	}
}

// Goal: an open access list costs no memory, since nearly every create has one.
// Method: the decoded list is znode.OpenACL itself.
func TestOpenACLIsShared(t *testing.T) {
	want := &znode.OpenACL[0]
	c := &znode.Create{Path: "/a", ACL: []znode.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}}
	for name, codec := range codecs {
		q, err := codec.DecodeRequest(codec.AppendRequest(nil, &Request{Op: OpCreate, Body: c}))
		if err != nil || &q.Body.(*znode.Create).ACL[0] != want {
			t.Errorf("%s: %+v, %v", name, q, err)
		}
	}
	_, p, err := DecodeEntry(AppendEntry(nil, znode.Stamp{}, [][]byte{AppendProposal(nil, &Proposal{Txn: znode.Txn{Op: c}})}))
	if err != nil || &p[0].Txn.Op.(*znode.Create).ACL[0] != want {
		t.Errorf("entry: %+v, %v", p, err)
	}
	if n := binary.BigEndian.Uint32([]byte(openACLVector)); n != 1 {
		t.Errorf("the shortcut's vector has %d entries", n)
	}
}
