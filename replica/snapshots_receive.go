package replica

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// receiving is the snapshot that this member is being sent. A new stream takes the place of
// an older one, whose end the sender may have seen sooner.
type receiving struct {
	turn sync.Mutex // held by who serves a stream
	// Of the turn's holder; once the state is offered, of the loop, then of who installs it.
	from, number uint64       // of the snapshot
	sink         SnapshotSink // nil if nothing is kept

	mu     sync.Mutex
	stream Stream // the newest, nil if there is none
	closed bool
	// offered: the state is complete, and Raft's or the machine's to deal with.
	offered bool
}

// enter waits for the turn of a stream; false: a newer one came, or the member stops.
func (r *receiving) enter(s Stream) bool {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	if r.stream != nil {
		r.stream.Close()
	}
	r.stream = s
	r.mu.Unlock()
	r.turn.Lock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.stream != s {
		r.turn.Unlock()
		return false
	}
	return true
}

func (r *receiving) leave(s Stream) {
	r.mu.Lock()
	if r.stream == s {
		r.stream = nil
	}
	r.mu.Unlock()
	r.turn.Unlock()
}

// offer marks the state as complete, or as taken or refused.
func (r *receiving) offer(offered bool) {
	r.mu.Lock()
	r.offered = offered
	r.mu.Unlock()
}

func (r *receiving) isOffered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offered
}

// begin begins to receive another state, as of entry last.
func (r *receiving) begin(m Machine, last uint64) error {
	if err := r.drop(); err != nil {
		return err
	}
	sink, err := m.Incoming(last)
	if err == nil {
		r.sink = sink
	}
	return err
}

// drop forgets what was received.
func (r *receiving) drop() error {
	sink := r.sink
	if r.sink = nil; sink == nil {
		return nil
	}
	return sink.Discard()
}

// close ends the stream that is served, and waits for that.
func (r *receiving) close() error {
	r.mu.Lock()
	r.closed = true
	if r.stream != nil {
		r.stream.Close()
	}
	r.mu.Unlock()
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.isOffered() {
		return nil // a restart decides
	}
	return r.drop()
}

// ReceiveStream implements Receiver.
func (r *Replica) ReceiveStream(from uint64, s Stream) {
	h, err := readHello(s)
	if err != nil {
		err = writeRefusal(s, err)
	} else {
		err = r.receiveSnapshot(from, h, s)
	}
	if err != nil {
		r.o.Log.Warn("a snapshot was not received", "from", from, "err", err)
	}
}

// receiveSnapshot serves a stream whose hello was read.
func (r *Replica) receiveSnapshot(from uint64, h hello, s Stream) error {
	last := h.message.GetSnapshot().GetMetadata().GetIndex()
	if err := r.refusal(h.message); err != nil {
		return writeRefusal(s, err)
	}
	if last <= r.applied.Load() {
		return writeAnswer(s, answerHave, nil)
	}
	if !r.receiving.enter(s) {
		return ErrStopped
	}
	defer r.receiving.leave(s)
	if r.receiving.isOffered() {
		return writeRefusal(s, fmt.Errorf("member %d is installing another snapshot", r.o.ID))
	}
	in := &r.receiving
	if in.sink == nil || in.from != from || in.number != h.number {
		if err := in.begin(r.o.Machine, last); err != nil {
			return writeRefusal(s, err)
		}
		in.from, in.number = from, h.number
	}
	position := in.sink.Position()
	r.o.Log.Info("receiving a snapshot", "from", from, "applied", last, "continued", len(position) > 0)
	if err := writeAnswer(s, answerContinue, position); err != nil {
		return err
	}
	start := time.Now()
	if err := in.sink.Receive(s); err != nil {
		return err
	}
	r.stats.snapshotsReceived.Add(1)
	r.o.Log.Info("a snapshot was received", "from", from, "applied", last, "took_ms", time.Since(start).Milliseconds())
	in.offer(true)
	if !r.in.task(func() { r.loop.snapshotReceived(from, h.message) }) {
		return ErrStopped
	}
	return writeAnswer(s, answerHave, nil)
}

// refusal returns why a snapshot is not taken, nil if it may be.
func (r *Replica) refusal(m *raftpb.Message) error {
	if err := r.failure(); err != nil {
		return fmt.Errorf("member %d has failed", r.o.ID)
	}
	if term := r.status.Load().term; m.GetTerm() < term {
		return fmt.Errorf("member %d is in term %d, the snapshot is of a leader of term %d", r.o.ID, term, m.GetTerm())
	}
	if c, err := snapshotConf(m.GetSnapshot()); err != nil {
		return err
	} else if !slices.Contains(memberIDs(c.state), r.o.ID) {
		return fmt.Errorf("member %d is no member as of the snapshot", r.o.ID)
	}
	return nil
}

// writeRefusal tells the sender, if it still is there, and returns why.
func writeRefusal(s Stream, why error) error {
	_ = writeAnswer(s, answerRefuse, []byte(why.Error()))
	return why
}

// snapshotReceived passes a snapshot to Raft, which decides whether to take it.
func (l *loop) snapshotReceived(from uint64, m *raftpb.Message) {
	m.From, m.To = new(from), new(l.core.id)
	l.offered = true
	if err := l.core.step(m); err != nil {
		l.r.o.Log.Warn("a snapshot was refused", "from", from, "err", err)
	}
}

// snapshotRefused is called when Raft has not taken the snapshot that it was offered,
// because this member got the entries or another leader meanwhile.
func (l *loop) snapshotRefused() {
	l.offered = false
	drop := func() {
		if err := l.r.receiving.drop(); err != nil {
			l.r.o.Log.Warn("a snapshot could not be removed", "err", err)
		}
		l.r.receiving.offer(false)
	}
	if l.r.manual {
		drop()
		return
	}
	l.r.wg.Add(1)
	go func() {
		defer l.r.wg.Done()
		drop()
	}()
}

// install lets the log begin behind a snapshot, with what msgs have besides, and puts the
// machine's state in place. The append goroutine calls it.
func (r *Replica) install(msgs []*raftpb.Message, last uint64) error {
	r.machine.Lock()
	defer r.machine.Unlock()
	start := time.Now()
	if err := r.write(msgs, false); err != nil {
		return err
	}
	if err := r.o.Machine.Install(last, r.restarted); err != nil {
		return fmt.Errorf("replica: installing the snapshot as of entry %d: %w", last, err)
	}
	r.applied.Store(last)
	r.receiving.sink = nil
	r.receiving.offer(false)
	r.o.Log.Info("a snapshot was installed", "applied", last, "took_ms", time.Since(start).Milliseconds())
	return nil
}

// restarted forgets what was proposed before: see Machine.Install.
func (r *Replica) restarted(origin uint64) {
	r.in.restart(func() {
		p := &r.loop.proposing
		bytes := 0
		for _, one := range p.own {
			bytes += len(one)
		}
		r.in.settled(bytes)
		p.restart(origin)
	})
}

// snapshotInstalled takes note that log and machine begin behind a snapshot.
func (l *loop) snapshotInstalled(s *raftpb.SnapshotMetadata) {
	l.appliedTerm, l.unapplied = s.GetTerm(), 0
	l.openProposing()
	l.publish()
}
