package wire

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// decodeAll gives msg to every decoder that faces strangers or a disk.
func decodeAll(msg []byte) {
	for _, c := range codecs {
		decodeConnects(c, msg)
		c.DecodeRequest(msg)
		for op := range opNames {
			c.DecodeMessage(msg, func(int32) (Op, bool) { return op, true })
		}
	}
	decodeRecords(msg)
}

func decodeConnects(c codec, msg []byte) {
	c.DecodeConnect(msg)
	c.DecodeConnectReply(msg)
}

func decodeRecords(msg []byte) {
	DecodeEntry(msg)
	DecodeResult(msg)
	DecodeChanges(msg)
	DecodeSession(msg)
}

// Goal: no input makes a decoder panic.
// Method: every kind of message, cut at every byte, with every 4 aligned bytes replaced
// by the lengths that hurt, and with random bytes flipped.
func TestHostileInputDoesNotPanic(t *testing.T) {
	s := newSource(t)
	var msgs [][]byte
	for range 12 {
		q, p := s.request(), s.reply()
		proposal, result := s.proposal(), s.result()
		entry := AppendEntry(nil, znode.Stamp{}, [][]byte{AppendProposal(nil, &proposal)})
		msgs = append(msgs, Jute{}.AppendRequest(nil, q), JSON{}.AppendRequest(nil, q),
			Jute{}.AppendReply(nil, p), JSON{}.AppendReply(nil, p), entry,
			AppendResult(nil, &result), AppendChanges(nil, list(s, s.change)))
	}
	for _, msg := range msgs {
		for n := range len(msg) {
			decodeAll(msg[:n])
		}
		for i := 0; i+4 <= len(msg); i += 4 {
			for _, length := range []uint32{1<<31 - 1, 1 << 31, 1<<32 - 1, 1<<32 - 2, uint32(len(msg))} {
				bad := bytes.Clone(msg)
				binary.BigEndian.PutUint32(bad[i:], length)
				decodeAll(bad)
			}
		}
		for range 20 {
			bad := bytes.Clone(msg)
			if len(bad) > 0 {
				bad[s.IntN(len(bad))] ^= byte(1 << s.IntN(8))
				decodeAll(bad)
			}
		}
	}
}

// Goal: a truncated message is an error, in every format, wherever it is cut.
// Method: formats whose every byte counts: log entries, results, changes, sessions; and
// JSON, which only its last bracket completes.
func TestTruncatedIsAnError(t *testing.T) {
	s := newSource(t)
	for range 50 {
		p, r := s.proposal(), s.result()
		entry := AppendEntry(nil, znode.Stamp{TimeMs: 5}, [][]byte{AppendProposal(nil, &p)})
		for n := range entry {
			if _, _, err := DecodeEntry(entry[:n]); err == nil || !strings.Contains(err.Error(), "offset") {
				t.Fatalf("entry cut at %d of %d: %v", n, len(entry), err)
			}
		}
		if _, _, err := DecodeEntry(append(entry, 0)); err == nil {
			t.Fatal("a byte behind an entry was taken")
		}
		result := AppendResult(nil, &r)
		for n := range result {
			if _, err := DecodeResult(result[:n]); err == nil {
				t.Fatalf("result cut at %d of %d was taken", n, len(result))
			}
		}
		changes := AppendChanges(nil, []znode.Change{s.change()})
		for n := range changes {
			if _, err := DecodeChanges(changes[:n]); err == nil {
				t.Fatalf("changes cut at %d of %d were taken", n, len(changes))
			}
		}
		request := JSON{}.AppendRequest(nil, s.request())
		for n := range request {
			if _, err := (JSON{}).DecodeRequest(request[:n]); err == nil {
				t.Fatalf("%q was taken", request[:n])
			}
		}
	}
	sess := AppendSession(nil, &session.Session{ID: 1, TimeoutMs: 2})
	for n := range sess {
		if _, err := DecodeSession(sess[:n]); err == nil {
			t.Fatalf("session cut at %d of %d was taken", n, len(sess))
		}
	}
}

// Goal: no message of a client makes the server allocate more than a small multiple of
// its size (C067).
// Method: messages of 64 KiB made of what expands most, and small ones with counts of
// 2^31-1; the bytes allocated are counted.
func TestC067RequestsAllocateInProportion(t *testing.T) {
	const size, factor, slack = 64 << 10, 32, 4 << 10
	fill := func(head, unit, tail string) []byte {
		return []byte(head + strings.Repeat(unit, size/len(unit)) + tail)
	}
	jute := func(head, unit string) []byte {
		return fill(string(raw(t, rawHeader+head)), string(raw(t, unit)), "")
	}
	tests := map[string]struct {
		c   codec
		msg []byte
	}{
		"count of 2^31-1":   {Jute{}, raw(t, rawHeader+"00000007"+rawPath+"7fffffff")},
		"checks in a multi": {Jute{}, jute("0000000e", "0000000d 00 ffffffff 00000000 00000000")},
		"creates in a multi": {Jute{}, jute("0000000e",
			"00000001 00 ffffffff 00000000 00000000 00000000 00000000")},
		"reads in a multiRead": {Jute{}, jute("00000016", "00000004 00 ffffffff 00000000 00")},
		"empty strings":        {Jute{}, jute("00000065 0000000000000000 00003f00", "00000000")},
		"empty access entries": {Jute{}, jute("00000007"+rawPath+"00001500", "00000000 00000000 00000000")},
		"unknown fields":       {JSON{}, fill(`{"xid":1,"op":"get"`, `,"a":0`, `}`)},
		"empty operations":     {JSON{}, fill(`{"xid":1,"op":"multi","ops":[{}`, `,{}`, `]}`)},
		"small operations":     {JSON{}, fill(`{"xid":1,"op":"multi","ops":[`, `{"op":"check","path":""},`, `]}`)},
		"wrong strings":        {JSON{}, fill(`{"xid":1,"op":"rewatch","relZxid":0,"watches":{"data":[1`, `,1`, `]}}`)},
		"short strings":        {JSON{}, fill(`{"xid":1,"op":"rewatch","relZxid":0,"watches":{"data":[""`, `,""`, `]}}`)},
		"escapes":              {JSON{}, fill(`{"xid":1,"op":"get","path":"`, `\n`, `"}`)},
		"lists in lists":       {JSON{}, fill(`{"xid":1,"op":"get","path":`, `[`, ``)},
		"empty access list":    {JSON{}, fill(`{"xid":1,"op":"setACL","path":"","acl":[{}`, `,{}`, `]}`)},
	}
	for name, tt := range tests {
		got := allocated(func() { tt.c.DecodeRequest(tt.msg) })
		if limit := uint64(factor*len(tt.msg) + slack); got > limit {
			t.Errorf("%s: %d bytes for a message of %d", name, got, len(tt.msg))
		}
	}
	for name, c := range codecs {
		if got := allocated(func() { decodeConnects(c, bytes.Repeat([]byte{0x7f}, 64)) }); got > slack {
			t.Errorf("%s: a bad handshake allocated %d bytes", name, got)
		}
	}
}

// Goal: a bad count in what is stored allocates nothing to speak of.
// Method: counts as large as the format can say, in each place that has one.
func TestRecordCountsAllocateNothing(t *testing.T) {
	huge := strings.Repeat("ff", 9) + "01"
	for _, text := range []string{
		"01 00 00" + huge,
		"01 00 00 01 20" + "01 0000000000000000 00 00 00 00" + huge,
		"01 00 00 01 20" + "01 0000000000000000 00 00 00 00 00 06" + huge,
		"01 00 00 01 20" + "01 0000000000000000 00 00 00 00 00 01 00" + huge,
		"01 00 00 01 20" + "01 0000000000000000 00 00 00 00 00 01 00 00" + huge,
		"01 07 00 00" + huge,
		"01" + huge,
	} {
		msg := raw(t, text)
		if got := allocated(func() { decodeRecords(msg) }); got > 8<<10 {
			t.Errorf("%s: %d bytes allocated", text, got)
		}
	}
}

// Goal: a kind of znode that a client does not know is an error, not a persistent znode.
// Method: lists whose parent has flags or a mode that no znode has.
func TestUnknownLifetimeIsRefused(t *testing.T) {
	opOf := func(int32) (Op, bool) { return OpList, true }
	for _, flags := range []string{"00000002", "00000006", "ffffffff"} {
		msg := raw(t, rawReply+"00000000 00000000 00"+rawStat+"00000000"+flags+"0000000000000000")
		if _, _, err := (Jute{}).DecodeMessage(msg, opOf); err == nil || !strings.Contains(err.Error(), "not the flags of a kind") {
			t.Errorf("flags %s: %v", flags, err)
		}
	}
	for _, mode := range []string{`"ttl-sequential"`, `"odd"`, `5`} {
		msg := `{"xid":7,"zxid":"1","names":[],"lifetime":{"mode":` + mode + `}}`
		if p, _, err := (JSON{}).DecodeMessage([]byte(msg), opOf); err == nil {
			t.Errorf("mode %s was taken as %+v", mode, p.Body)
		}
	}
}
