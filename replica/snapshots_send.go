package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

const (
	// sendsMax bounds the snapshots that are being sent at once.
	sendsMax = 2
	// resumable is how long a snapshot is kept, and the log behind it, for a member that does not
	// answer, so that it can go on where its stream broke.
	resumable = 5 * time.Minute
	// settling is how long the log behind a snapshot that was sent is kept for the member
	// to come up to it.
	settling = time.Minute
	// attemptsMax is how often a snapshot is begun from one position before another is taken.
	attemptsMax = 2
	// retryTicksMax is after how many ticks at most a snapshot that failed is tried again.
	retryTicksMax = 64
)

// errConfAhead: try again.
var errConfAhead = errors.New("replica: the membership has changed behind the state")

// outgoing is a snapshot for one member: while it is being sent it belongs to the goroutine
// that does that, else to the loop.
type outgoing struct {
	to     uint64
	term   uint64 // in which this member leads
	ctx    context.Context
	cancel context.CancelFunc

	sending bool          // the loop's
	over    bool          // the loop's: to be dropped when it is not being sent any more
	retry   int           // in how many ticks Raft is told that it failed
	pause   int           // what retry was at first: it doubles with each failure in a row
	until   time.Duration // when it is given up

	// Of the state, from when it is taken on.
	source SnapshotSource // nil before, and when all was sent
	last   uint64
	hello  hello
	from   []byte // position of the last attempt
	// attempts is how often it was begun from there.
	attempts int
	answered bool  // in the last attempt
	sent     int64 // bytes
}

// sendSnapshot sends a peer the state that it lacks. Raft is told how that ends.
func (l *loop) sendSnapshot(m *raftpb.Message) {
	to := m.GetTo()
	o := l.outgoing[to]
	if o != nil && o.sending {
		return
	}
	sending := 0
	for _, other := range l.outgoing {
		if other.sending {
			sending++
		}
	}
	if sending >= sendsMax || l.r.o.Network == nil {
		l.core.snapshotSent(to, false)
		return
	}
	if o == nil {
		o = &outgoing{to: to}
		l.outgoing[to] = o
	}
	if o.source == nil {
		o.hello, o.from, o.attempts, o.sent = hello{number: draw()}, nil, 0, 0
		o.until = l.r.o.Now() + resumable
		l.r.log.hold(to, l.r.applied.Load())
	}
	o.term, o.sending, o.retry, o.answered = l.core.term, true, 0, false
	o.ctx, o.cancel = context.WithCancel(l.r.ctx)
	if l.r.manual {
		l.sends = append(l.sends, o)
		return
	}
	l.r.wg.Add(1)
	go func() {
		defer l.r.wg.Done()
		l.r.sendState(o)
	}()
}

// sendState sends a snapshot and reports to the loop.
func (r *Replica) sendState(o *outgoing) {
	start := time.Now()
	err := r.transmit(o)
	o.cancel()
	switch {
	case err == nil && o.sent == 0: // it has what it needs
	case err == nil:
		r.stats.snapshotsSent.Add(1)
		r.o.Log.Info("a snapshot was sent", "to", o.to, "applied", o.last, "bytes", o.sent, "took_ms", time.Since(start).Milliseconds())
	case r.ctx.Err() == nil:
		r.o.Log.Warn("a snapshot could not be sent", "to", o.to, "applied", o.last, "bytes", o.sent, "err", err)
	}
	if !r.in.task(func() { r.loop.snapshotEnded(o, err) }) {
		r.closeSource(o)
	}
}

// closeSource lets go of the state.
func (r *Replica) closeSource(o *outgoing) {
	if o.source == nil {
		return
	}
	if err := o.source.Close(); err != nil {
		r.o.Log.Warn("a snapshot could not be closed", "err", err)
	}
	o.source = nil
}

// transmit is one attempt.
func (r *Replica) transmit(o *outgoing) error {
	if err := o.ctx.Err(); err != nil {
		return err
	}
	if o.source == nil {
		if err := r.takeSource(o); err != nil {
			return err
		}
	}
	o.hello.message.Term = new(o.term)
	s, err := r.o.Network.Stream(o.ctx, o.to)
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(o.ctx, func() { s.Close() })()
	if err := writeHello(s, o.hello); err != nil {
		return err
	}
	kind, from, err := readAnswer(s)
	if err != nil || kind == answerHave {
		return err
	}
	o.answered = true
	if o.attempts++; !bytes.Equal(from, o.from) {
		o.from, o.pause, o.attempts = from, 0, 1
	} else if o.attempts > attemptsMax {
		// It does not get on: perhaps what is read here is not right.
		return fmt.Errorf("%w: nothing was taken of it", errRefused)
	}
	r.o.Log.Info("sending a snapshot", "to", o.to, "applied", o.last, "continued", len(from) > 0)
	if len(from) == 0 {
		from = nil
	}
	if err := o.source.Write(&pacedWriter{w: s, r: r, o: o}, from); err != nil {
		return err
	}
	if err := s.CloseWrite(); err != nil {
		return err
	}
	if kind, _, err = readAnswer(s); err == nil && kind != answerHave {
		err = fmt.Errorf("replica: answer %d to a whole snapshot", kind)
	}
	return err
}

// takeSource takes the state and what Raft has to know of it.
func (r *Replica) takeSource(o *outgoing) error {
	source, err := r.o.Machine.Snapshot()
	if err != nil {
		return err
	}
	last := source.Applied()
	r.log.hold(o.to, last)
	// The loop has set the membership before it let the machine apply the entry.
	c := r.log.conf()
	term, err := r.log.Term(last)
	if err == nil && c.index > last {
		err = errConfAhead
	}
	if err != nil {
		return errors.Join(err, source.Close())
	}
	o.source, o.last = source, last
	o.hello.message = &raftpb.Message{Type: raftpb.MsgSnap.Enum(), Snapshot: &raftpb.Snapshot{Data: c.snapshotData(),
		Metadata: &raftpb.SnapshotMetadata{ConfState: c.state, Index: new(last), Term: new(term)}}}
	return nil
}

func (l *log) conf() conf {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.conf
}

// pacedWriter keeps to Options.SnapshotRate. It writes no more at a time than goes in a second:
// a stream on which nothing comes for long is given up.
type pacedWriter struct {
	w io.Writer
	r *Replica
	o *outgoing
}

func (p *pacedWriter) Write(b []byte) (written int, err error) {
	rate := p.r.o.SnapshotRate
	for len(b) > 0 && err == nil {
		piece := b
		if rate > 0 {
			piece = b[:min(int64(len(b)), rate)]
		}
		if err = p.r.pace.wait(p.o.ctx, rate, len(piece)); err != nil {
			break
		}
		var n int
		n, err = p.w.Write(piece)
		p.o.sent += int64(n)
		p.r.stats.snapshotBytes.Add(int64(n))
		written += n
		b = b[n:]
	}
	return written, err
}

// pace spreads bytes over time, for all who share it.
type pace struct {
	mu   sync.Mutex
	next time.Time // when the next bytes may go
}

// wait waits until n bytes may go at rate bytes per second; no bound below 0.
func (p *pace) wait(ctx context.Context, rate int64, n int) error {
	if rate < 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	due := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	p.mu.Unlock()
	if due <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// snapshotEnded takes note of how an attempt ended. A snapshot whose stream broke is kept
// for the next one, but not for ever if none comes through: it holds the log.
func (l *loop) snapshotEnded(o *outgoing, err error) {
	o.sending = false
	now := l.r.o.Now()
	switch {
	case o.over || !l.core.isLeader() || l.core.term != o.term:
		l.dropSnapshot(o)
		l.core.snapshotSent(o.to, false) // this member may lead again
	case err == nil:
		l.r.closeSource(o)
		o.pause, o.until = 0, now+settling
		l.core.snapshotSent(o.to, true)
	default:
		if o.answered {
			o.until = now + resumable
		}
		if errors.Is(err, errRefused) || now >= o.until {
			l.r.closeSource(o)
		}
		o.pause = min(max(1, 2*o.pause), retryTicksMax)
		o.retry = o.pause
	}
}

// tickSnapshots lets time pass: attempts that failed are reported after a while, so that Raft
// tries again, and snapshots that nobody needs any more are dropped.
func (l *loop) tickSnapshots() {
	if len(l.outgoing) == 0 {
		return
	}
	now := l.r.o.Now()
	for _, o := range l.outgoing {
		if o.sending {
			continue
		}
		if o.retry > 0 {
			if o.retry--; o.retry == 0 {
				l.core.snapshotSent(o.to, false)
			}
			continue
		}
		if o.last > 0 && l.core.match(o.to) >= o.last || now >= o.until {
			l.dropSnapshot(o)
		}
	}
}

// keepLog keeps, on the leader, what of the log others still need.
func (l *loop) keepLog() {
	from := uint64(0)
	if l.core.isLeader() {
		from = l.core.lacking(l.r.log.span().first - 1)
	}
	l.r.log.lacking(from)
}

// dropSnapshot ends a snapshot that is not being sent.
func (l *loop) dropSnapshot(o *outgoing) {
	l.r.closeSource(o)
	l.r.log.release(o.to)
	delete(l.outgoing, o.to)
	if o.retry > 0 {
		l.core.snapshotSent(o.to, false)
	}
}

// dropSnapshots ends all snapshots, as the lead is lost.
func (l *loop) dropSnapshots() {
	for _, o := range l.outgoing {
		if o.over = true; o.sending {
			o.cancel()
			continue
		}
		l.dropSnapshot(o)
	}
}

// snapshotSent tells Raft how the sending of a snapshot ended.
func (c *core) snapshotSent(to uint64, ok bool) {
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	c.node.ReportSnapshot(to, status)
}

// match returns up to where a member is known to have this leader's log.
func (c *core) match(id uint64) (match uint64) {
	c.node.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		if other == id {
			match = pr.Match
		}
	})
	return match
}

// lacking returns the first entry that some other member lacks, as far as the log, which
// begins behind begins, can help it; 0 if there is nobody.
func (c *core) lacking(begins uint64) (from uint64) {
	c.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		// Nothing is known of one that was not heard of in this term: it may need little.
		beyond := pr.Match > 0 && pr.Match < begins
		if id == c.id || pr.State == tracker.StateSnapshot || beyond {
			return
		}
		if from == 0 || pr.Match+1 < from {
			from = pr.Match + 1
		}
	})
	return from
}
