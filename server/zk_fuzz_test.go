package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// splitReader gives its bytes in pieces of given sizes, over and over.
type splitReader struct {
	net.Conn // nil: only Read is called
	left     []byte
	sizes    []byte
	at       int
}

func (s *splitReader) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := len(s.left)
	if len(s.sizes) > 0 {
		n = 1 + int(s.sizes[s.at%len(s.sizes)])
		s.at++
	}
	n = copy(p, s.left[:min(n, len(s.left))])
	s.left = s.left[n:]
	return n, nil
}

// Goal: framing finds the same messages however the bytes are cut into reads, never takes
// more than the limit, and a word is taken only if it is the first four bytes. Method:
// arbitrary bytes in pieces of arbitrary sizes against the rule on the whole.
func FuzzZooKeeperFraming(f *testing.F) {
	const limit = 1 << 12
	good := append(append(rawStr(nil, "one"), rawInt(nil, 0)...), rawStr(nil, string(make([]byte, 300)))...)
	f.Add(good, []byte{0})
	f.Add(good, []byte{})
	f.Add(append(good, 0, 0, 16, 1), []byte{2, 3, 250})
	f.Add(append([]byte("ruok"), good...), []byte{0, 7})
	f.Add([]byte{255, 255, 255, 255, 1}, []byte{0})
	f.Add(rawStr(nil, string(make([]byte, limit))), []byte{255})
	f.Fuzz(func(t *testing.T, stream, sizes []byte) {
		nc := &gatherConn{Conn: &splitReader{left: stream, sizes: sizes}}
		d := &zkDoor{nc: nc, in: bufio.NewReaderSize(nc, zkReadBuffer), limit: limit}
		rest := stream
		word := d.word()
		if isFirst := len(rest) >= 4 && isWord(string(rest[:4])); isFirst != (word != "") {
			t.Fatalf("word %q at the head of %x", word, rest)
		}
		rest = rest[len(word):]
		for {
			msg, err := d.Next()
			n := -1
			if len(rest) >= 4 {
				n = int(int32(binary.BigEndian.Uint32(rest)))
			}
			if n < 0 || n > limit || n > len(rest)-4 {
				if _, refused := errors.AsType[refusal](err); err == nil || refused != (len(rest) >= 4 && (n < 0 || n > limit)) {
					t.Fatalf("at %x: message %x, %v", rest, msg, err)
				}
				return
			}
			if err != nil || !bytes.Equal(msg, rest[4:4+n]) {
				t.Fatalf("at %x: message %x, %v", rest, msg, err)
			}
			rest = rest[4+n:]
		}
	})
}

// Goal: whatever a client sends costs its own connection at most: nothing hangs, nothing
// is left of it, and another session goes on. Method: arbitrary bytes to a served
// connection, raw or as one message, before or behind a handshake; then the end of the
// stream, what the server counts, and what the other session is answered.
func FuzzZooKeeperConnection(f *testing.F) {
	s, err := openOn(Config{DataDir: f.TempDir(), Listen: "127.0.0.1:0", ZKListen: "127.0.0.1:0", ZKMinSessionTimeout: 100 * time.Millisecond},
		slog.New(slog.DiscardHandler), vfs.NewMem())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Shutdown(f.Context()) })
	other := newBystander(f, s)
	hello := handshake(0, 100, 0, make([]byte, 16), nil)
	f.Add(false, false, []byte{0x7f, 0xff, 0xff, 0xff})
	f.Add(false, false, []byte("ruok\n"))
	f.Add(false, true, hello)
	for op, rest := range rawPathOps() {
		f.Add(true, true, append(rawStr(rawInt(rawInt(nil, 1), int32(op)), "/f"), rest...))
	}
	for _, q := range []wire.Request{{Op: wire.OpPing}, {Op: wire.OpCloseSession}, {Op: wire.OpWhoAmI},
		{Op: wire.OpMulti, Body: &znode.Multi{Ops: []znode.Op{&znode.Check{Path: "/", Version: -1}, &znode.Create{Path: "/f", ACL: znode.OpenACL}}}},
		{Op: wire.OpMultiRead, Body: &wire.MultiRead{Ops: []wire.ReadOp{{Op: wire.OpGetData, Path: "/"}, {Op: wire.OpGetChildren, Path: "/"}}}},
		{Op: wire.OpAuth, Body: &wire.Auth{Scheme: "digest", Data: []byte("a:b")}}, {Op: wire.OpSASL, Body: &wire.SASL{}},
		{Op: wire.OpSetWatches2, Body: &wire.SetWatches{Data: []string{"/"}, Exist: []string{"/"}, Child: []string{"/"}, Persistent: []string{"/"}, Recursive: []string{"/"}}},
		{Op: wire.OpReconfig, Body: &wire.Reconfig{}}, {Op: wire.OpGetEphemerals, Body: &wire.PathOnly{}}, {Op: wire.OpDeleteContainer}} {
		msg := wire.Jute{}.AppendRequest(nil, &q)
		f.Add(true, true, msg)
		f.Add(true, false, bytes.Repeat(append(rawInt(nil, int32(len(msg))), msg...), 3))
	}
	f.Fuzz(func(t *testing.T, greet, whole bool, data []byte) {
		if whole {
			data = append(rawInt(nil, int32(len(data))), data...)
		}
		if greet {
			data = append(append(rawInt(nil, int32(len(hello))), hello...), data...)
		}
		nc, err := net.Dial("tcp", s.ZKAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.Write(data) // the server may have closed already
		nc.(*net.TCPConn).CloseWrite()
		nc.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, nc); err != nil && !isReset(err) {
			t.Fatalf("the connection is still open: %v", err)
		}
		nc.Close()
		waitFor(t, "nothing is left of the connection", 10*time.Second, func() bool {
			held, count := s.outstanding.now()
			return len(s.conns.all()) == 1 && held == 0 && count == 0
		})
		other.ask(t)
		if err := s.Err(); err != nil {
			t.Fatalf("the server failed: %v", err)
		}
	})
}

// bystander is a session that must not notice anything.
type bystander struct{ framed }

func newBystander(f *testing.F, s *Server) bystander {
	f.Helper()
	nc, err := net.Dial("tcp", s.ZKAddr().String())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { nc.Close() })
	b := bystander{framed{nc, bufio.NewReader(nc)}}
	b.WriteMessage(0, handshake(0, 40_000, 0, make([]byte, 16), nil))
	if _, reply, err := b.ReadMessage(); err != nil || len(reply) != 36 {
		f.Fatalf("handshake: %x %v", reply, err)
	}
	return b
}

// ask sends a request and waits for its answer.
func (b bystander) ask(t *testing.T) {
	t.Helper()
	b.SetReadDeadline(time.Now().Add(20 * time.Second))
	err := b.WriteMessage(0, wire.Jute{}.AppendRequest(nil, &wire.Request{Xid: 1, Op: wire.OpSync, Body: &wire.PathOnly{Path: "/"}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, reply, err := b.ReadMessage(); err != nil || len(reply) != 16+4+1 {
		t.Fatalf("another session: %x %v", reply, err)
	}
}
