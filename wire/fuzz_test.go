package wire

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// seeds adds n random messages to a fuzz target's corpus, the same ones every time.
func seeds(f *testing.F, n int, msg func(s source) []byte) {
	s := source{rand.New(rand.NewPCG(1, 2))}
	for range n {
		f.Add(msg(s))
	}
}

// Goal: what a stranger's bytes mean does not change when it is encoded again.
// Method: decode; if it worked, encode, decode, compare.
func FuzzJuteRequest(f *testing.F) {
	for _, g := range goldenRequests {
		f.Add(raw(f, rawHeader+g.bytes))
	}
	seeds(f, 50, func(s source) []byte { return Jute{}.AppendRequest(nil, s.request()) })
	f.Fuzz(func(t *testing.T, msg []byte) { requestAgain(t, Jute{}, msg) })
}

// Goal: ZooKeeper's requests are Jute's, and Tenure's own are unknown to it. Method: the
// same bytes for both.
func FuzzZooKeeperRequest(f *testing.F) {
	for _, g := range goldenRequests {
		f.Add(raw(f, rawHeader+g.bytes))
	}
	seeds(f, 50, func(s source) []byte { return Jute{}.AppendRequest(nil, s.request()) })
	f.Fuzz(func(t *testing.T, msg []byte) {
		q, err := ZooKeeper{}.DecodeRequest(msg)
		if err == nil && q.Op >= OpWith {
			if q.Err != znode.Unimplemented || q.Body != nil {
				t.Fatalf("%x: %+v", msg, q)
			}
			return
		}
		jute, juteErr := Jute{}.DecodeRequest(msg)
		if !reflect.DeepEqual(q, jute) || (err == nil) != (juteErr == nil) {
			t.Fatalf("%x: %+v %v, Jute %+v %v", msg, q, err, jute, juteErr)
		}
	})
}

// Goal and method: as FuzzJuteRequest.
func FuzzJSONRequest(f *testing.F) {
	f.Add([]byte(`{"xid":1,"op":"create","path":"\ud83d\udc02","acl":[{"perms":-0,"scheme":"\u0000","id":""}]}`))
	seeds(f, 100, func(s source) []byte { return JSON{}.AppendRequest(nil, s.request()) })
	f.Fuzz(func(t *testing.T, msg []byte) { requestAgain(t, JSON{}, msg) })
}

func requestAgain(t *testing.T, c codec, msg []byte) {
	q, err := c.DecodeRequest(msg)
	if err != nil || q.Err != znode.OK {
		return
	}
	again, err := c.DecodeRequest(c.AppendRequest(nil, &q))
	if err != nil || !reflect.DeepEqual(q, again) {
		t.Fatalf("%+v %+v became %+v %+v, %v", q, q.Body, again, again.Body, err)
	}
}

// Goal: what a server's bytes mean does not change when it is encoded again.
// Method: decode as the reply to any operation; if it worked, encode, decode, compare.
func FuzzJuteReply(f *testing.F) {
	for _, g := range goldenReplies {
		f.Add(int32(g.reply.Op), raw(f, g.bytes))
	}
	f.Fuzz(func(t *testing.T, op int32, msg []byte) {
		opOf := func(int32) (Op, bool) { return Op(op), true }
		p, e, err := Jute{}.DecodeMessage(msg, opOf)
		if err != nil {
			return
		}
		if p != nil && p.Op == OpPing {
			p.Xid = pingXid // whatever it was
		}
		var again []byte
		if e != nil {
			again = Jute{}.AppendEvent(nil, e)
		} else {
			again = Jute{}.AppendReply(nil, p)
		}
		p2, e2, err := Jute{}.DecodeMessage(again, opOf)
		if err != nil || !reflect.DeepEqual(p, p2) || !reflect.DeepEqual(e, e2) {
			t.Fatalf("%+v %+v became %+v %+v, %v", p, e, p2, e2, err)
		}
	})
}

// Goal: as FuzzJuteReply. Method: decode and encode; what is encoded is a fixed point,
// though a field may come without it being given.
func FuzzJSONReply(f *testing.F) {
	for _, g := range goldenReplies {
		f.Add(int32(g.reply.Op), JSON{}.AppendReply(nil, &g.reply))
	}
	f.Add(int32(OpMulti), []byte(`{"xid":1,"results":[{"err":0}]}`)) // neither a write nor failed
	f.Fuzz(func(t *testing.T, op int32, msg []byte) {
		opOf := func(int32) (Op, bool) { return Op(op), true }
		p, _, err := JSON{}.DecodeMessage(msg, opOf)
		if err != nil || p == nil {
			return
		}
		once := JSON{}.AppendReply(nil, p)
		if p, _, err = (JSON{}).DecodeMessage(once, opOf); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if again := (JSON{}).AppendReply(nil, p); !bytes.Equal(again, once) {
			t.Fatalf("%s became %s", once, again)
		}
	})
}

// Goal and method: as FuzzJuteRequest, for both sides of both handshakes.
func FuzzConnect(f *testing.F) {
	for _, c := range codecs {
		f.Add(c.AppendConnect(nil, &ConnectRequest{Session: 5, Password: make([]byte, 16)}))
		f.Add(c.AppendConnectReply(nil, &ConnectReply{Session: 5}))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		for name, c := range codecs {
			if q, err := c.DecodeConnect(msg); err == nil {
				again, err := c.DecodeConnect(c.AppendConnect(nil, &q))
				if err != nil || !reflect.DeepEqual(q, again) {
					t.Fatalf("%s: %+v became %+v, %v", name, q, again, err)
				}
			}
			if p, err := c.DecodeConnectReply(msg); err == nil {
				again, err := c.DecodeConnectReply(c.AppendConnectReply(nil, &p))
				if err != nil || !reflect.DeepEqual(p, again) {
					t.Fatalf("%s: %+v became %+v, %v", name, p, again, err)
				}
			}
		}
	})
}

// Goal: a log entry has one encoding only, per version.
// Method: decode; if it worked, the same bytes come out again, or more if they are of the
// version before, which is not written any more; then those mean the same.
func FuzzEntry(f *testing.F) {
	seeds(f, 50, func(s source) []byte {
		p := s.proposal()
		return AppendEntry(nil, znode.Stamp{TimeMs: s.long()}, [][]byte{AppendProposal(nil, &p)})
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		stamp, proposals, err := DecodeEntry(data)
		if err != nil {
			return
		}
		var parts [][]byte
		for i := range proposals {
			parts = append(parts, AppendProposal(nil, &proposals[i]))
		}
		again := AppendEntry(nil, stamp, parts)
		if len(again) <= len(data) && !bytes.Equal(again, data) {
			t.Fatalf("%x became %x", data, again)
		}
		if _, same, err := DecodeEntry(again); err != nil || !reflect.DeepEqual(same, proposals) {
			t.Fatalf("%x became %x: %v", data, again, err)
		}
	})
}

// Goal and method: as FuzzEntry, for the other records that are stored.
func FuzzResult(f *testing.F) {
	seeds(f, 50, func(s source) []byte { r := s.result(); return AppendResult(nil, &r) })
	seeds(f, 10, func(s source) []byte { return AppendChanges(nil, list(s, s.change)) })
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := DecodeResult(data); err == nil && !bytes.Equal(AppendResult(nil, &r), data) {
			t.Fatalf("result %x became %x", data, AppendResult(nil, &r))
		}
		if c, err := DecodeChanges(data); err == nil && !bytes.Equal(AppendChanges(nil, c), data) {
			t.Fatalf("changes %x became %x", data, AppendChanges(nil, c))
		}
		if s, err := DecodeSession(data); err == nil && !bytes.Equal(AppendSession(nil, &s), data) {
			t.Fatalf("session %x became %x", data, AppendSession(nil, &s))
		}
	})
}
