package wire

import (
	"reflect"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// codec is both sides of an encoding.
type codec interface {
	ServerCodec
	ClientCodec
}

var codecs = map[string]codec{"jute": Jute{}, "json": JSON{}}

const rounds = 3000

// Goal: a request survives both encodings, and both mean the same.
// Method: random requests, encoded as a client would and decoded as a server would.
func TestRequestsRoundTrip(t *testing.T) {
	s := newSource(t)
	for range rounds {
		want := s.request()
		for name, c := range codecs {
			msg := c.AppendRequest(nil, want)
			got, err := c.DecodeRequest(msg)
			if err != nil {
				t.Fatalf("%s %v: %v\n%q", name, want.Op, err, msg)
			}
			if !reflect.DeepEqual(&got, want) {
				t.Fatalf("%s %v: got %+v %+v\nwant %+v %+v\n%q", name, want.Op, got, got.Body, want, want.Body, msg)
			}
		}
	}
}

// Goal: a reply survives both encodings, and both mean the same.
// Method: random replies, encoded as a server would and decoded as a client would.
func TestRepliesRoundTrip(t *testing.T) {
	s := newSource(t)
	for range rounds {
		want := s.reply()
		for name, c := range codecs {
			msg := c.AppendReply(nil, want)
			got, event, err := c.DecodeMessage(msg, func(xid int32) (Op, bool) { return want.Op, xid == want.Xid })
			if err != nil || event != nil {
				t.Fatalf("%s %v: event %v, error %v\n%q", name, want.Op, event, err, msg)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s %v: got %+v %+v\nwant %+v %+v\n%q", name, want.Op, got, got.Body, want, want.Body, msg)
			}
		}
	}
}

// Goal: the error of a multi whose first failure is not in front is found by both sides.
// Method: all codes that can stand before the one that counts.
func TestMultiErrorIsTheOneThatFailed(t *testing.T) {
	m := &znode.Result{Kind: znode.ResultMulti, Err: znode.BadVersion, Sub: []znode.Result{
		{}, {Err: znode.BadVersion}, {Err: znode.RuntimeInconsistency},
	}}
	for name, c := range codecs {
		for _, header := range []znode.Error{znode.OK, znode.BadVersion} {
			msg := c.AppendReply(nil, &Reply{Xid: 1, Op: OpMulti, Err: header, Body: m})
			p, _, err := c.DecodeMessage(msg, func(int32) (Op, bool) { return OpMulti, true })
			if err != nil || p.Err != znode.OK || !reflect.DeepEqual(p.Body, m) {
				t.Errorf("%s: got %+v %+v, %v", name, p, p.Body, err)
			}
		}
	}
	if e := firstError(znode.RuntimeInconsistency, znode.NoNode); e != znode.NoNode {
		t.Errorf("RuntimeInconsistency hides NoNode: %v", e)
	}
}

// Goal: handshakes survive both encodings; the flag of newer clients is answered exactly
// if it was there.
// Method: with and without the flag, with null, empty, short and full passwords.
func TestConnectRoundTrips(t *testing.T) {
	yes, no := true, false
	for name, c := range codecs {
		for _, readOnly := range []*bool{nil, &yes, &no} {
			for _, password := range [][]byte{nil, {}, {1, 2}, make([]byte, 16)} {
				want := ConnectRequest{LastZxid: 1 << 60, TimeoutMs: -5, Session: -7, Password: password, ReadOnly: readOnly}
				got, err := c.DecodeConnect(c.AppendConnect(nil, &want))
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
				}
			}
			want := ConnectReply{TimeoutMs: 4000, Session: session.ID(1<<63 - 1), ReadOnly: readOnly}
			copy(want.Password[:], "0123456789abcdef")
			got, err := c.DecodeConnectReply(c.AppendConnectReply(nil, &want))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
			}
		}
	}
}

// Goal: every event survives both encodings.
// Method: all types, also the gap, with zxid -1 and a big one.
func TestEventsRoundTrip(t *testing.T) {
	for name, c := range codecs {
		for eventType := range eventNames {
			for _, zxid := range []int64{-1, 1<<62 + 1} {
				want := &Event{Type: eventType, Path: "/é", Zxid: zxid}
				p, got, err := c.DecodeMessage(c.AppendEvent(nil, want), func(int32) (Op, bool) { return 0, false })
				if err != nil || p != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
				}
			}
		}
	}
}

// Goal: everything that is stored reads back as it was, and a second encoding of it is
// the same bytes.
// Method: random entries, results, changes and sessions.
func TestRecordsRoundTrip(t *testing.T) {
	s := newSource(t)
	for range rounds {
		stamp := znode.Stamp{TimeMs: s.long(), Rules: znode.Rules{NoTTL: s.flip(), EnforceQuota: s.flip(), Full: s.flip()}}
		proposals := list(s, s.proposal)
		var parts [][]byte
		for i := range proposals {
			parts = append(parts, AppendProposal(nil, &proposals[i]))
		}
		gotStamp, got, err := DecodeEntry(AppendEntry([]byte("x"), stamp, parts)[1:])
		if err != nil || gotStamp != stamp || !reflect.DeepEqual(got, proposals) {
			t.Fatalf("entry: got %+v %+v, %v\nwant %+v %+v", gotStamp, got, err, stamp, proposals)
		}
		result := s.result()
		if got, err := DecodeResult(AppendResult(nil, &result)); err != nil || !reflect.DeepEqual(got, result) {
			t.Fatalf("result: got %+v, %v\nwant %+v", got, err, result)
		}
		changes := list(s, s.change)
		if got, err := DecodeChanges(AppendChanges(nil, changes)); err != nil || !reflect.DeepEqual(got, changes) {
			t.Fatalf("changes: got %+v, %v\nwant %+v", got, err, changes)
		}
		sess := session.Session{ID: session.ID(s.long()), TimeoutMs: s.int(), Owner: s.owner(s.Uint64())}
		copy(sess.Password[:], s.data())
		if got, err := DecodeSession(AppendSession(nil, &sess)); err != nil || got != sess {
			t.Fatalf("session: got %+v, %v; want %+v", got, err, sess)
		}
	}
}
