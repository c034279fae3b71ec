package zk

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// frame puts the length before a payload.
func frame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// multi is the payload of a transaction of these operations, each with a path.
func multi(ops ...int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, 7) // xid
	b = binary.BigEndian.AppendUint32(b, opMulti)
	for _, op := range ops {
		b = binary.BigEndian.AppendUint32(b, uint32(op))
		b = append(b, 0, 0xff, 0xff, 0xff, 0xff)
		b = append(b, 0, 0, 0, 2, '/', 'a')
		b = binary.BigEndian.AppendUint32(b, 0xffffffff) // version
	}
	return append(b, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff)
}

// Goal: only a transaction that does nothing but check is taken for a renewal, and
// garbage is not read beyond its end. Method: a few, whole and cut short.
func TestChecksOnly(t *testing.T) {
	for _, c := range []struct {
		payload []byte
		want    bool
	}{
		{multi(opCheck), true}, {multi(opCheck, opCheck), true},
		{multi(opCheck, 2), false}, {multi(1), false}, {nil, false},
		{[]byte{0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, '/', 0}, false}, // a get
	} {
		if got := checksOnly(c.payload); got != c.want {
			t.Errorf("checksOnly(%x) = %v", c.payload, got)
		}
		for end := range c.payload {
			if checksOnly(c.payload[:end]) {
				t.Errorf("checksOnly(%x) of an incomplete payload", c.payload[:end])
			}
		}
	}
}

// Goal: frames are found however the stream is cut into reads and writes. Method: random
// frames in random pieces, by a seed.
func TestFramesInPieces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var stream []byte
		var want []string
		for range 20 {
			payload := make([]byte, r.IntN(60))
			for i := range payload {
				payload[i] = byte(r.IntN(256))
			}
			stream = append(stream, frame(payload)...)
			want = append(want, fmt.Sprintf("%d %x", len(payload), payload[:min(len(payload), handshakeHead)]))
		}
		var sent, received []string
		var out requests
		var in replies
		for len(stream) > 0 {
			n := 1 + r.IntN(min(90, len(stream)))
			out.note(slices.Clone(stream[:n]), func(p []byte) {
				sent = append(sent, fmt.Sprintf("%d %x", len(p), p[:min(len(p), handshakeHead)]))
			})
			err := in.note(stream[:n], func(size int, head []byte) error {
				received = append(received, fmt.Sprintf("%d %x", size, head))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			stream = stream[n:]
		}
		if !slices.Equal(sent, want) || !slices.Equal(received, want) {
			t.Fatalf("frames\n%q\nfound in writes\n%q\nin reads\n%q", want, sent, received)
		}
	}
}

// Goal: addresses of the command line. Method: a table.
func TestParseAddress(t *testing.T) {
	for _, c := range []struct {
		address string
		servers []string
		chroot  string
	}{
		{"zk://a", []string{"a:2181"}, ""},
		{"zk://a:1,b,c:3/", []string{"a:1", "b:2181", "c:3"}, ""},
		{"zk://10.0.0.1:2182,[::1]:2183/app/x", []string{"10.0.0.1:2182", "[::1]:2183"}, "/app/x"},
		{"zk://[::1]", []string{"[::1]:2181"}, ""},
		{"zk://", nil, ""}, {"ws://a", nil, ""}, {"zk://a,,b", nil, ""}, {"zk://a/b/", nil, ""},
		{"zk://::1", nil, ""}, {"zk://u:p@a", nil, ""}, {"zk://a:", nil, ""}, {"a:2181", nil, ""},
	} {
		servers, chroot, err := ParseAddress(c.address)
		if (err != nil) != (c.servers == nil) || !slices.Equal(servers, c.servers) || chroot != c.chroot {
			t.Errorf("ParseAddress(%q) = %q, %q, %v", c.address, servers, chroot, err)
		}
	}
}
