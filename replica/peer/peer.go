package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// peer is one other member, while it is one.
type peer struct {
	t       *Transport
	id      uint64
	address atomic.Pointer[string]
	ctx     context.Context // ends with membership, or the transport
	cancel  context.CancelFunc
	poke    chan struct{} // has a token if the peer was just seen to be there
	queues  [replica.Classes]queue
	stats   counters

	// turns have a token while a connection's frames of that class are received, so that
	// none of a new link comes before the last of the old one.
	turns [replica.Classes]chan struct{}
	in    *inbound // the link that the peer made; under Transport.mu
	// streams has a token for each that the peer opened.
	streams chan struct{}

	// events makes Connected and Disconnected come one at a time and by turns.
	events struct {
		sync.Mutex
		linked bool // frames can be sent
	}
	connected atomic.Bool // the receiver was told so; written under events
}

func newPeer(t *Transport, id uint64, address string) *peer {
	p := &peer{t: t, id: id, poke: make(chan struct{}, 1), streams: make(chan struct{}, t.cfg.StreamsMax)}
	p.address.Store(&address)
	p.ctx, p.cancel = context.WithCancel(t.ctx)
	for class := range replica.Classes {
		p.queues[class].sent = &p.stats
		p.queues[class].limit = t.cfg.queueMax(class)
		p.queues[class].wake = make(chan struct{}, 1)
		p.turns[class] = make(chan struct{}, 1)
	}
	return p
}

// seen makes this member's attempt to connect come at once.
func (p *peer) seen() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// linked says that this member's link to the peer is ready.
func (p *peer) linked() {
	p.events.Lock()
	p.events.linked = true
	p.events.Unlock()
	p.whole()
}

// whole tells the receiver that the peer is connected, if frames can be sent.
func (p *peer) whole() {
	p.events.Lock()
	defer p.events.Unlock()
	if p.events.linked && !p.connected.Load() && p.t.ctx.Err() == nil {
		p.connected.Store(true)
		p.t.log.Info("member is connected", "member", p.id, "address", *p.address.Load())
		p.t.receiver.Connected(p.id)
	}
}

// broke tells the receiver that an established connection broke; ours: of the link that
// this member made.
func (p *peer) broke(ours bool, reason error) {
	p.stats.failed(reason)
	p.events.Lock()
	defer p.events.Unlock()
	if ours {
		p.events.linked = false
	}
	say := func() { p.t.log.Warn("connection with a member broke", "member", p.id, "error", reason) }
	switch {
	case p.t.ctx.Err() != nil:
	case p.connected.Load():
		p.connected.Store(false)
		say()
		p.t.receiver.Disconnected(p.id)
	case reason != nil:
		p.t.news.tell(p.id, reason, say)
	}
}

// run keeps a link to the peer until it is no member any more.
func (p *peer) run() {
	wait := p.t.cfg.BackoffMin
	for p.ctx.Err() == nil {
		lasted, err := p.link()
		if p.ctx.Err() != nil {
			return
		}
		if lasted == 0 {
			p.stats.failed(err)
			p.t.news.tell(p.id, err, func() { p.t.log.Warn("no connection to a member", "member", p.id, "error", err) })
		}
		if lasted > p.t.cfg.BackoffMax {
			wait = p.t.cfg.BackoffMin
		}
		pause := time.NewTimer(wait - rand.N(wait/2+1))
		select {
		case <-pause.C:
		case <-p.poke:
		case <-p.ctx.Done():
		}
		pause.Stop()
		wait = min(2*wait, p.t.cfg.BackoffMax)
	}
}

// link makes a link and keeps it until it breaks, and says how long that was; 0: it was
// not made.
func (p *peer) link() (lasted time.Duration, err error) {
	select {
	case <-p.poke: // from before this attempt
	default:
	}
	number := rand.Uint64() | 1
	var conns [replica.Classes]conn
	for class := range replica.Classes {
		c, err := p.t.dial(p.ctx, p, class, number)
		if err != nil {
			return 0, err
		}
		defer p.t.drop(c.raw)
		conns[class] = c
	}
	p.stats.links.Add(1)
	began := time.Now()
	ended := make(chan error, 2*len(conns))
	var all sync.WaitGroup
	for class, c := range conns {
		class := replica.Class(class)
		p.queues[class].open(c)
		all.Go(func() { ended <- p.write(class, c) })
		all.Go(func() { ended <- p.readAnswers(class, c) })
	}
	p.linked()
	select {
	case err = <-ended:
	case <-p.ctx.Done():
		err = errGone
	}
	for class := range conns {
		p.stats.dropped.Add(uint64(p.queues[class].close()))
		_ = conns[class].raw.Close()
	}
	p.broke(true, err)
	all.Wait()
	return max(time.Since(began), 1), err
}

// errLinkEnded: the link's other half has failed.
var errLinkEnded = errors.New("the link has ended")

// write writes the frames of a queue, and pings among them, until the link ends.
func (p *peer) write(class replica.Class, c conn) error {
	q := &p.queues[class]
	w := frameWriter{conn: c.Conn, timeout: p.t.cfg.writeTimeout(class), buf: make([]byte, 0, gatherSize)}
	var pings <-chan time.Time
	if class == replica.Control {
		ticker := time.NewTicker(p.t.cfg.PingInterval)
		defer ticker.Stop()
		pings = ticker.C
	}
	var frames [][]byte
	for ping := false; ; {
		rest, taken, open := q.take(frames[:0], !ping)
		if frames = taken; !open {
			return errLinkEnded
		}
		if len(rest) == 0 && len(frames) == 0 && !ping {
			select {
			case <-q.wake:
			case <-pings:
				ping = true
			}
			continue // nobody else writes behind the next take
		}
		if !ping {
			select {
			case <-pings:
				ping = true
			default:
			}
		}
		if err := p.writeBatch(q, &w, rest, frames, ping); err != nil {
			return err
		}
		ping = false
	}
}

// writeBatch writes the rest of a frame, a ping if one is due, and frames, which are forgotten.
func (p *peer) writeBatch(q *queue, w *frameWriter, rest []byte, frames [][]byte, ping bool) error {
	if len(rest) > 0 {
		w.arm()
		if _, err := w.conn.Write(rest); err != nil {
			return err
		}
	}
	if ping {
		if err := w.ping(time.Since(p.t.began)); err != nil {
			return err
		}
	}
	bytes := 0
	for i, frame := range frames {
		if err := w.frame(frame); err != nil {
			return err
		}
		frames[i] = nil
		bytes += len(frame)
		if bytes >= chunkSize {
			p.stats.sentBytes.Add(uint64(bytes))
			q.written(bytes)
			bytes = 0
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	p.stats.sentFrames.Add(uint64(len(frames)))
	p.stats.sentBytes.Add(uint64(bytes))
	q.written(bytes)
	return nil
}

// readAnswers reads what comes back on a connection of this member: answers to pings on
// control, nothing on bulk, and on both their end.
func (p *peer) readAnswers(class replica.Class, c conn) error {
	silence := time.Duration(0)
	if class == replica.Control {
		silence = p.t.cfg.SilenceTimeout
	}
	r := newFrameReader(c, silence, 0)
	for {
		_, ping, err := r.next()
		switch {
		case err != nil:
			return err
		case ping == nil || class != replica.Control:
			return errPingExpected
		}
		sent := time.Duration(binary.BigEndian.Uint64(ping[lengthSize:]))
		p.stats.roundTrip(time.Since(p.t.began) - sent)
	}
}
