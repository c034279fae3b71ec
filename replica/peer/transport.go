// Package peer carries frames and streams between the members of an ensemble over TCP,
// with mutually authenticated TLS or plainly. It knows nothing of what they mean.
//
// Each member dials two connections to each other member, its link to it: one for each
// class of frames, so that much data never delays a heartbeat. It only writes frames to
// them; those of the other member come by that member's link. Control connections carry
// pings as well, which measure the round trip and find a silent end.
package peer

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/certfile"
	"github.com/tenure-dev/tenure/replica"
)

// Transport is the network of one member: a replica.Network. It is safe for concurrent
// use; Close must not be called by the Receiver's methods, since it waits for them.
type Transport struct {
	cfg   Config
	log   *slog.Logger
	creds *certfile.Files // nil without TLS
	began time.Time       // what pings count their time from
	// What is logged once a minute, that of strangers apart: they can make up much.
	news, refusals causes

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	done     sync.WaitGroup
	receiver replica.Receiver // set before any other goroutine runs

	// peers is replaced, never changed, under mu; Send looks without.
	peers atomic.Pointer[map[uint64]*peer]
	mu    struct {
		sync.Mutex
		closed     bool
		conns      map[net.Conn]uint64 // all that are open, and whose; 0 before that is known
		handshakes int                 // incoming ones in progress
		perIP      map[string]int      // of those
	}
}

var _ replica.Network = (*Transport)(nil)

// Open returns a transport that does nothing before Serve.
func Open(c Config) (*Transport, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	t := &Transport{cfg: c, log: c.Log, began: time.Now()}
	if c.TLS != nil {
		files, err := certfile.Open([]string{c.TLS.CertFile, c.TLS.KeyFile, c.TLS.CAFile}, c.TLS.load, c.Log)
		if err != nil {
			return nil, err
		}
		t.creds = files
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.peers.Store(&map[uint64]*peer{})
	t.mu.conns = map[net.Conn]uint64{}
	t.mu.perIP = map[string]int{}
	return t, nil
}

// Serve begins to accept connections and to make those to the members, and hands what
// comes to r. It must be called once.
func (t *Transport) Serve(r replica.Receiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return
	}
	t.receiver = r
	t.done.Go(t.acceptLoop)
	for _, p := range *t.peers.Load() {
		t.done.Go(p.run)
	}
}

// SetMembers says who the members are and where they listen; this member may be among
// them. Before the first call nobody is one.
func (t *Transport) SetMembers(addresses map[uint64]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.peers.Load()
	for id, p := range old {
		if _, stays := addresses[id]; !stays {
			t.removeLocked(p)
		}
	}
	for id, address := range addresses {
		if id == t.cfg.ID {
			continue
		}
		if p := (*t.peers.Load())[id]; p == nil {
			t.addLocked(id, address)
		} else if was := p.address.Swap(&address); *was != address {
			// Whoever is at the old address is not the member any more.
			t.cutLocked(p)
			p.seen()
		}
	}
}

// addLocked makes a peer and begins to connect to it.
func (t *Transport) addLocked(id uint64, address string) *peer {
	peers := maps.Clone(*t.peers.Load())
	p := newPeer(t, id, address)
	peers[id] = p
	t.peers.Store(&peers)
	if t.receiver != nil && !t.mu.closed {
		t.done.Go(p.run)
	}
	return p
}

// removeLocked forgets a peer and ends its connections.
func (t *Transport) removeLocked(p *peer) {
	peers := maps.Clone(*t.peers.Load())
	delete(peers, p.id)
	t.peers.Store(&peers)
	p.cancel()
	t.cutLocked(p)
}

// cutLocked ends all connections to and from a peer.
func (t *Transport) cutLocked(p *peer) {
	for raw, id := range t.mu.conns {
		if id == p.id {
			_ = raw.Close()
		}
	}
}

var errSize = errors.New("a frame's size is not allowed")

// peer returns the member with the given id, or nil.
func (t *Transport) peer(id uint64) *peer { return (*t.peers.Load())[id] }

// Send queues a frame for a peer and never blocks. False: it was dropped, because it is
// empty or too large, or the peer is unknown, not connected, or does not keep up.
func (t *Transport) Send(to uint64, class replica.Class, frame []byte) bool {
	p := t.peer(to)
	if p == nil || class >= replica.Classes {
		return false
	}
	if len(frame) == 0 || len(frame) > t.cfg.frameMax(class) {
		p.stats.dropped.Add(1)
		t.news.tell(to, errSize, func() {
			t.log.Error("frame was not sent", "to", to, "bytes", len(frame), "max", t.cfg.frameMax(class), "error", errSize)
		})
		return false
	}
	if !p.queues[class].push(frame) {
		p.stats.dropped.Add(1)
		return false
	}
	return true
}

// Close ends all connections and waits for the Receiver's methods to return; nothing is
// delivered behind it. Frames that are queued are lost.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.mu.closed {
		t.mu.Unlock()
		return nil
	}
	t.mu.closed = true
	t.cancel()
	err := t.cfg.Listener.Close()
	for raw := range t.mu.conns {
		_ = raw.Close()
	}
	t.mu.Unlock()
	t.done.Wait()
	return err
}

// errGone: the connection's end is no member (any more), or the transport is closed.
var errGone = errors.New("not a member any more, or this member stops")

// hold keeps an open connection in mind, of a peer or (nil) of nobody knows whom yet, so
// that Close and SetMembers can end it. False: it is not wanted any more.
func (t *Transport) hold(raw net.Conn, p *peer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed || p != nil && t.peer(p.id) != p {
		return false
	}
	t.mu.conns[raw] = 0
	if p != nil {
		t.mu.conns[raw] = p.id
	}
	return true
}

// drop closes a connection and forgets it.
func (t *Transport) drop(raw net.Conn) {
	t.mu.Lock()
	delete(t.mu.conns, raw)
	t.mu.Unlock()
	_ = raw.Close()
}

// conn is a connection whose greetings are done.
type conn struct {
	net.Conn          // over TLS, if there is any
	raw      net.Conn // below it: closing this never blocks
}
