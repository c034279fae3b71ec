package client

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stopped is a server's side of a connection that takes bytes and never acts on them once it
// is stopped, as the socket of a process that got SIGSTOP.
type stopped struct {
	net.Conn
	now *atomic.Bool
}

func (s stopped) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	for err == nil && s.now.Load() {
		n, err = s.Conn.Read(p)
	}
	return n, err
}

// Goal: where there is another server, one whose process is stopped is given up within the
// probe's patience, far below two thirds of the session timeout. Method: stop the reading side of
// all connections that are open; new ones work.
func TestStoppedServerIsGivenUp(t *testing.T) {
	bubble(t, []string{"a:1", "b:1"}, func(t *testing.T, f *fakeEnsemble) {
		var now atomic.Pointer[atomic.Bool]
		now.Store(new(atomic.Bool))
		f.with(func() {
			for _, m := range f.members {
				m.slow = func(c net.Conn) net.Conn { return stopped{c, now.Load()} }
			}
		})
		c := f.client(t, nil)
		s := c.Session()
		earlier := now.Swap(new(atomic.Bool))
		earlier.Store(true)
		start := time.Now()
		if _, err := c.Set(context.Background(), "/zookeeper", nil, -1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*probeEvery+probePatience+lastWordsWait || took < probePatience {
			t.Fatalf("answered after %v", took)
		}
		if c.Session() != s {
			t.Fatal("the session was lost")
		}
	})
}

// buffered is a client's side of a connection on a slow link: what is written is taken at once,
// as by a kernel, and comes in order when the link has carried it.
type buffered struct {
	net.Conn
	queue  chan []byte
	closed chan struct{}
	once   sync.Once
}

func newBuffered(c net.Conn, perByte time.Duration) *buffered {
	b := &buffered{Conn: c, queue: make(chan []byte, 1<<10), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-b.queue:
				select {
				case <-time.After(time.Duration(len(p)) * perByte):
					_, _ = c.Write(p) // of a closed connection there is nothing to carry
				case <-b.closed:
					return
				}
			case <-b.closed:
				return
			}
		}
	}()
	return b
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case b.queue <- slices.Clone(p):
		return len(p), nil
	case <-b.closed:
		return 0, net.ErrClosed
	}
}

func (b *buffered) SetWriteDeadline(time.Time) error { return nil }

func (b *buffered) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}

// Goal: a server is given up for a ping that it did not answer, not for a time in which nobody
// asked it anything, nor for the time that a slow link takes. Method: requests at many moments
// of an idle connection, heartbeats among them, on a very slow link; then a large write on one
// that carries 1 Mbit/s.
func TestServerThatAnswersIsKept(t *testing.T) {
	bubble(t, []string{"a:1", "b:1"}, func(t *testing.T, f *fakeEnsemble) {
		perByte := time.Millisecond // so that a small request takes 50 ms and more
		c := f.client(t, func(o *Options) {
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				nc, err := f.dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return newBuffered(nc, perByte), nil
			}
		})
		for i := range 60 {
			<-time.After(2*time.Second + time.Duration(i)*17*time.Millisecond)
			if _, err := c.Set(t.Context(), "/zookeeper", nil, -1); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.Stats().Connects; n != 1 {
			t.Errorf("%d connections to servers that answer", n)
		}
		perByte = 8 * time.Microsecond
		f.cutAll()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Set(ctx, "/zookeeper", make([]byte, 500<<10), -1); err != nil {
			t.Fatal(err)
		}
		if n := c.Stats().Connects; n != 2 {
			t.Errorf("%d connections, want one more for the slow link", n)
		}
	})
}

// Goal: a message that is refused while the writer is at work ends the connection and touches
// nothing of the writer's, which the race detector judges. Method: the server takes nothing any more, so
// that a write hangs, and sends more than the client allows.
func TestRefusedWhileWriting(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		var now atomic.Bool
		release := make(chan struct{})
		f.with(func() {
			f.members["a:1"].slow = func(c net.Conn) net.Conn { return hanging{c, &now, release} }
		})
		c := f.client(t, func(o *Options) { o.ReplyBytesMax = 4 << 10 })
		let := sync.OnceFunc(func() { now.Store(false); close(release) })
		defer let()
		synctest.Wait()
		now.Store(true)
		if _, err := c.Set(t.Context(), "/zookeeper", nil, -1); err != nil { // the last that is taken
			t.Fatal(err)
		}
		set := make(chan error, 1)
		go func() {
			_, err := c.Set(t.Context(), "/zookeeper", nil, -1)
			set <- err
		}()
		<-time.After(time.Second) // which, other than synctest.Wait, puts nothing in order for the detector
		f.with(func() {
			for fc := range f.conns {
				fc.push(make([]byte, 8<<10))
			}
		})
		awaitState(t, c.Session(), Suspended)
		let()
		if err := <-set; err != nil {
			t.Fatal(err)
		}
	})
}

// hanging is a server's side of a connection that takes nothing from now on until released.
type hanging struct {
	net.Conn
	now     *atomic.Bool
	release chan struct{}
}

func (h hanging) Read(p []byte) (int, error) {
	if h.now.Load() {
		<-h.release
	}
	return h.Conn.Read(p)
}
