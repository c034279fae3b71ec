package peer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

const testCluster = 0x2a

// recorder is a Receiver that keeps what it is told.
type recorder struct {
	lock   sync.Mutex
	frames map[string][][]byte // by member and class
	events []string            // "+2", "-2"
	at     time.Time           // of the last event

	forget   bool                                                 // keep no frames
	refuse   string                                               // a frame that is refused
	onFrame  func(from uint64, class replica.Class, frame []byte) // before a frame is kept
	onStream func(from uint64, s replica.Stream)
}

func lane(from uint64, class replica.Class) string { return fmt.Sprint(from, "/", class) }

func (r *recorder) Receive(from uint64, class replica.Class, frame []byte) error {
	if r.refuse != "" && string(frame) == r.refuse {
		return fmt.Errorf("%q makes no sense", frame)
	}
	if r.onFrame != nil {
		r.onFrame(from, class, frame)
	}
	if r.forget {
		return nil
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.frames == nil {
		r.frames = map[string][][]byte{}
	}
	r.frames[lane(from, class)] = append(r.frames[lane(from, class)], frame)
	return nil
}

func (r *recorder) event(e string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.events = append(r.events, e)
	r.at = time.Now()
}

func (r *recorder) Connected(peer uint64)    { r.event(fmt.Sprint("+", peer)) }
func (r *recorder) Disconnected(peer uint64) { r.event(fmt.Sprint("-", peer)) }

func (r *recorder) ReceiveStream(from uint64, s replica.Stream) {
	if r.onStream != nil {
		r.onStream(from, s)
	}
}

// got returns the frames of a member and class so far.
func (r *recorder) got(from uint64, class replica.Class) [][]byte {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.frames[lane(from, class)]
}

// told returns the events so far, and when the last one came.
func (r *recorder) told() (string, time.Time) {
	r.lock.Lock()
	defer r.lock.Unlock()
	return fmt.Sprint(r.events), r.at
}

// logText is where a member's log lines go.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// member is one end of a test.
type member struct {
	*Transport
	recorder
	id      uint64
	address string
	logged  logText
}

func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// newMember opens a member that does not serve yet, at a port of its own unless change
// sets a listener. It takes nobody for silent who only is slow.
func newMember(t testing.TB, id uint64, change func(*Config)) *member {
	t.Helper()
	m := &member{id: id}
	c := Config{Cluster: testCluster, ID: id, Instance: 100 + id, Version: fmt.Sprint("v", id), Features: 1 << id,
		SilenceTimeout: 2 * patience, Log: slog.New(slog.NewTextHandler(&m.logged, nil))}
	if change != nil {
		change(&c)
	}
	if c.Listener == nil {
		c.Listener = listen(t, "127.0.0.1:0")
	}
	m.address = c.Listener.Addr().String()
	orDefault(&c.Advertise, m.address)
	var err error
	if m.Transport, err = Open(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// serve makes the members know each other and begin.
func serve(members ...*member) {
	addresses := map[uint64]string{}
	for _, m := range members {
		addresses[m.id] = m.address
	}
	for _, m := range members {
		m.SetMembers(addresses)
		m.Serve(&m.recorder)
	}
}

// pair starts two members, 1 and 2, that are connected.
func pair(t testing.TB, change func(*Config)) (a, b *member) {
	t.Helper()
	a, b = newMember(t, 1, change), newMember(t, 2, change)
	serve(a, b)
	waitWhole(t, a, b)
	return a, b
}

// waitWhole waits until the links of two members are made in both directions.
func waitWhole(t testing.TB, a, b *member) {
	t.Helper()
	waitFor(t, "the members are connected", func() bool { return isWhole(a, b.id) && isWhole(b, a.id) })
}

func isWhole(m *member, peer uint64) bool {
	p := m.peer(peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	return p != nil && p.connected.Load() && p.in != nil &&
		p.in.conns[replica.Control].raw != nil && p.in.conns[replica.Bulk].raw != nil
}

// patience is how long a test waits for what comes at once unless the machine is busy.
const patience = 30 * time.Second

// waitFor polls until done returns true.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		<-tick.C
	}
}

// mustSend sends a frame, again until it is taken.
func mustSend(t testing.TB, m *member, to uint64, class replica.Class, frame []byte) {
	t.Helper()
	waitFor(t, "frame is taken", func() bool { return m.Send(to, class, frame) })
}

// numbered is a frame that says which one it is.
func numbered(n, size int) []byte {
	b := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(b, uint64(n))
	return b
}

// connLog remembers the connections that a member dials.
type connLog struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (l *connLog) add(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
}

// reset breaks the newest connection but n, with a reset.
func (l *connLog) reset(t testing.TB, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conns[len(l.conns)-1-n].(*net.TCPConn)
	if err := c.SetLinger(0); err != nil {
		t.Log(err) // it is closed already
	}
	_ = c.Close()
}

// readAll returns what c brings until its end.
func readAll(c net.Conn) string {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b, _ := io.ReadAll(c)
	return string(b)
}
