package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// handshake is a connect request's bytes.
func handshake(lastZxid int64, timeout int32, id session.ID, password, readOnly []byte) []byte {
	b := rawInt(rawLong(rawInt(nil, 0), lastZxid), timeout)
	b = rawLong(b, int64(id))
	if password == nil {
		return append(rawInt(b, -1), readOnly...)
	}
	return append(rawStr(b, string(password)), readOnly...)
}

// answerTo sends one message on a new connection and returns the first that comes back,
// nil if the connection ends without one. It leaves the connection open.
func answerTo(t *testing.T, s *Server, msg []byte) (*rawClient, []byte) {
	t.Helper()
	r := dialRaw(t, s, zooKeeper)
	r.write(msg)
	r.link.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, b, err := r.link.ReadMessage()
	if err != nil && err != io.EOF && !isReset(err) {
		t.Fatalf("handshake of %d bytes: %v", len(msg), err)
	}
	return r, b
}

// isReset reports whether the peer closed a connection with something unread.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET)
}

// Goal: a handshake of any length is judged: below 44 bytes with a password of 16 the
// connection ends without a word, from there on the session opens, and the reply has the
// byte for read-only exactly if the request has one; more bytes are ignored. Method: all
// lengths from 0 to 60.
func TestZooKeeperHandshakeOfEveryLength(t *testing.T) {
	s := startServer(t, Config{})
	whole := append(handshake(0, 10_000, 0, make([]byte, 16), nil), make([]byte, 16)...)
	for n := range 61 {
		r, got := answerTo(t, s, whole[:n])
		want := 36
		switch {
		case n < 44:
			want = 0
		case n > 44:
			want = 37
		}
		if len(got) != want {
			t.Errorf("%d bytes: answered %x, want %d bytes", n, got, want)
		}
		r.drop()
	}
}

// Goal: what a handshake says is taken as ZooKeeper takes it. Method: a table of fields
// out of the ordinary, for a session that is to be opened.
func TestZooKeeperHandshakeFields(t *testing.T) {
	s := startServer(t, Config{})
	openAs(t, s, zooKeeper, 0).must("/a", "", persistent)
	password := make([]byte, 16)
	foreign := handshake(0, 5000, 0, password, nil)
	foreign[3] = 7
	for _, row := range []struct {
		name    string
		msg     []byte
		timeout int32
		length  int
	}{
		{"a null password", handshake(0, 5000, 0, nil, nil), 5000, 36},
		{"an empty password", handshake(0, 5000, 0, []byte{}, nil), 5000, 36},
		{"a short password", handshake(0, 5000, 0, []byte("short"), []byte{0}), 5000, 37},
		{"a long password", handshake(0, 5000, 0, make([]byte, 40), nil), 5000, 36},
		{"another version of the protocol", foreign, 5000, 36},
		{"read-only welcome", handshake(0, 5000, 0, password, []byte{1}), 5000, 37},
		{"no timeout", handshake(0, 0, 0, password, nil), 4000, 36},
		{"a negative timeout", handshake(0, -5, 0, password, nil), 4000, 36},
		{"a long timeout", handshake(0, 1<<31-1, 0, password, nil), 40_000, 36},
		{"a zxid that was there", handshake(1, 5000, 0, password, nil), 5000, 36},
		{"a negative zxid", handshake(-1, 5000, 0, password, nil), 5000, 36},
	} {
		r, got := answerTo(t, s, row.msg)
		if len(got) != row.length {
			t.Errorf("%s: answered %x, want %d bytes", row.name, got, row.length)
			continue
		}
		reply, err := r.codec.DecodeConnectReply(got)
		if err != nil || reply.Session == 0 || reply.TimeoutMs != row.timeout || len(got) == 37 && got[36] != 0 {
			t.Errorf("%s: %+v %v, want a session with timeout %d", row.name, reply, err, row.timeout)
		}
		if r.stat("/a") == nil {
			t.Errorf("%s: the session does not serve", row.name)
		}
	}
	// Who has seen more than this member has is sent away without a word.
	if _, got := answerTo(t, s, handshake(s.store.LastZxid()+1000, 5000, 0, password, nil)); got != nil {
		t.Errorf("a client from the future: answered %x", got)
	}
}

// Goal: a session that cannot be continued is refused with timeout, id and password of
// zeros and the end of the connection, whatever the reason, and nobody else is disturbed.
// Method: unknown, closed and garbage ids, and a live session with wrong passwords, with
// and without the byte for read-only.
func TestZooKeeperHandshakeRefusals(t *testing.T) {
	s := startServer(t, Config{})
	owner, closed := openAs(t, s, zooKeeper, 30*time.Second), openAs(t, s, zooKeeper, 30*time.Second)
	path := owner.must("/e", "", ephemeral)
	closed.call(wire.Request{Op: wire.OpCloseSession})
	type attempt struct {
		id       session.ID
		password []byte
	}
	flipped := owner.session.Password
	flipped[15] ^= 1
	attempts := []attempt{{-1, make([]byte, 16)}, {1, make([]byte, 16)}, {-1 << 63, make([]byte, 16)}, {1<<63 - 1, make([]byte, 16)},
		{0x1234567, nil}, {closed.session.Session, closed.session.Password[:]}, {owner.session.Session, flipped[:]},
		{owner.session.Session, nil}, {owner.session.Session, []byte{}}, {owner.session.Session, owner.session.Password[:15]}}
	for i, a := range attempts {
		readOnly := make([]byte, i%2)
		r, got := answerTo(t, s, handshake(0, 10_000, a.id, a.password, readOnly))
		want := append(append(rawLong(rawLong(nil, 0), 0), 0, 0, 0, 16), make([]byte, 16+i%2)...)
		if !bytes.Equal(got, want) {
			t.Errorf("session %v with password %x: answered %x, want %x", a.id, a.password, got, want)
		}
		r.wantClosed("a refused session", -1)
	}
	if st := owner.stat(path); st == nil || st.EphemeralOwner != owner.session.Session {
		t.Errorf("the owner's ephemeral has %+v", st)
	}
}

// Goal: who continues a session gets its id and password again and the timeout that its
// session has, uses up no zxid, and takes it from the connection that had it. Method:
// resume with another timeout while the first connection is open and has a watch.
func TestZooKeeperHandshakeResumes(t *testing.T) {
	s := startServer(t, Config{})
	a := openAs(t, s, zooKeeper, 10*time.Second)
	a.must("/a", "", persistent)
	a.watched(wire.OpGetData, "/a")
	before := s.store.LastZxid()
	b := dialRaw(t, s, zooKeeper)
	got := b.connect(wire.ConnectRequest{Session: a.session.Session, Password: a.session.Password[:], TimeoutMs: 20_000})
	if got.Session != a.session.Session || got.Password != a.session.Password || got.TimeoutMs != 10_000 {
		t.Errorf("resumed as %+v, was %+v", got, a.session)
	}
	if zxid := s.store.LastZxid(); zxid != before {
		t.Errorf("resuming used up zxids %d to %d", before+1, zxid)
	}
	a.wantClosed("the old connection", -1)
	b.set("/a", "x")
	b.wantTold("watches belong to the connection that set them")
}

// Goal: the length in front of a message is from 0 to the limit; what is outside costs
// the connection without a word, before and behind the handshake, and the session lives
// on. Method: lengths around the ends.
func TestZooKeeperFrameLengths(t *testing.T) {
	s := startServer(t, Config{})
	limit := int32(s.cfg.MaxMessageBytes)
	for _, length := range []int32{-1, -1 << 31, limit + 1, 1<<31 - 1, 0x47455420} {
		first := dialFramed(t, s)
		first.Write(rawInt(nil, length))
		r := openAs(t, s, zooKeeper, 30*time.Second)
		r.link.NetConn().Write(rawInt(nil, length))
		if _, before := r.closed(); len(before) > 0 {
			t.Errorf("length %d: answered %x", length, before)
		}
		first.SetReadDeadline(time.Now().Add(20 * time.Second))
		if b, err := io.ReadAll(first); len(b) > 0 || err != nil && !isReset(err) {
			t.Errorf("length %d as the first: %x %v", length, b, err)
		}
		if again := resumeRaw(t, s, zooKeeper, r.session); again.session.Session != r.session.Session {
			t.Errorf("length %d: the session is gone", length)
		}
	}
	r := openAs(t, s, zooKeeper, 30*time.Second)
	msg := append(rawInt(rawInt(nil, 9), int32(wire.OpPing)), make([]byte, limit-8)...)
	r.pings = []int32{9}
	r.write(msg)
	if reply := r.next(); reply.Err != znode.OK {
		t.Errorf("a message of the limit: %v", reply.Err)
	}
	r.write(nil) // no header
	r.wantClosed("a message of nothing", -1)
}

// Goal: how the bytes of a message are cut into segments does not matter. Method: a
// handshake and requests written byte by byte.
func TestZooKeeperBytesOneByOne(t *testing.T) {
	s := startServer(t, Config{})
	r := dialRaw(t, s, zooKeeper)
	var all []byte
	for _, msg := range [][]byte{handshake(0, 10_000, 0, make([]byte, 16), []byte{0}),
		r.codec.AppendRequest(nil, &wire.Request{Xid: 1, Op: wire.OpCreate, Body: &znode.Create{Path: "/a", ACL: znode.OpenACL}}),
		r.codec.AppendRequest(nil, &wire.Request{Xid: 2, Op: wire.OpExists, Body: &wire.PathWatch{Path: "/a"}})} {
		all = append(binary.BigEndian.AppendUint32(all, uint32(len(msg))), msg...)
	}
	for i := range all {
		if _, err := r.link.NetConn().Write(all[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{37, 16 + 4 + 2, 16 + 68} {
		if got := r.read(); len(got) != want {
			t.Errorf("message %d: %x, want %d bytes", i, got, want)
		}
	}
}

// Goal: who does not finish the handshake is let go in time. Method: nothing, a part of
// a length and a part of a message.
func TestZooKeeperHandshakeDeadline(t *testing.T) {
	t.Parallel()
	s := startServer(t, Config{HandshakeTimeout: 300 * time.Millisecond})
	starts := [][]byte{nil, {0, 0}, {0, 0, 0, 44, 1}, rawInt(nil, 1<<20-1)}
	each(len(starts), len(starts), func(i int) {
		began, f := time.Now(), dialFramed(t, s)
		f.Write(starts[i])
		f.SetReadDeadline(time.Now().Add(20 * time.Second))
		b, err := io.ReadAll(f)
		if took := time.Since(began); len(b) > 0 || err != nil || took < 200*time.Millisecond || took > 10*time.Second {
			t.Errorf("%x: read %x %v after %v", starts[i], b, err, took)
		}
	})
	waitFor(t, "all are gone", 10*time.Second, func() bool { return len(s.conns.all()) == 0 })
	if held, n := s.outstanding.now(); held != 0 || n != 0 {
		t.Errorf("%d bytes of %d requests are held", held, n)
	}
}
