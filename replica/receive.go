package replica

import (
	"context"
	"fmt"
	"slices"
)

var _ Receiver = (*Replica)(nil)

// Receive implements Receiver.
func (r *Replica) Receive(from uint64, _ Class, frame []byte) error {
	kind, body, err := decodeFrame(frame)
	if err != nil {
		return err
	}
	switch kind {
	case frameCall:
		if r.o.Serve != nil {
			r.serve(from, body.(note), func(_ context.Context, payload []byte) ([]byte, error) { return r.o.Serve(from, payload) })
		}
	case frameMembers:
		r.serve(from, body.(note), r.serveQuestion)
	case frameReply:
		r.replied(body.(note))
	default:
		r.in.frame(inbound{from: from, kind: kind, body: body, size: len(frame)})
		r.loop.poke()
	}
	return nil
}

// Connected implements Receiver.
func (r *Replica) Connected(peer uint64) {
	r.in.task(func() { r.loop.met(peer) })
}

// Disconnected implements Receiver.
func (r *Replica) Disconnected(peer uint64) {
	r.in.task(func() {
		delete(r.loop.heard, peer)
		r.loop.lost(peer)
	})
}

// send passes a frame to a peer.
func (r *Replica) send(to uint64, class Class, frame []byte) bool {
	return r.o.Network != nil && r.o.Network.Send(to, class, frame)
}

// Resign hands the lead over to the voter that is best fit for it, if this member leads and
// there is one, and waits until it has: until another member is known to lead, since the
// third one, if the connection to this member breaks before it knows that, stands against
// the successor. Errors: ErrNoSuccessor, ErrStopped, ctx's.
func (r *Replica) Resign(ctx context.Context) error { return r.handOver(ctx, 0) }

// handOver makes voter to the leader, or with 0 whoever is best fit, if this member leads,
// and waits until another one does.
func (r *Replica) handOver(ctx context.Context, to uint64) error {
	for led := false; ; led = true {
		changed := *r.changed.Load()
		if st := r.Status(); !st.IsLeader && (st.Leader != 0 || !led) {
			return nil
		}
		begun := make(chan error, 1)
		if !r.in.task(func() { begun <- r.loop.transfer(to) }) {
			return ErrStopped
		}
		select {
		case err := <-begun:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("replica: the lead was not taken over: %w", ctx.Err())
		}
	}
}

// transfer begins to hand the lead over.
func (l *loop) transfer(to uint64) error {
	voters := l.core.conf.state.GetVoters()
	if to == 0 && l.core.isLeader() {
		to = l.successor(voters)
	}
	switch {
	case !l.core.isLeader() || to == l.core.id:
		return nil
	case to == 0:
		return ErrNoSuccessor
	case !slices.Contains(voters, to):
		return fmt.Errorf("%w: member %d is no voter: the voters are %v", ErrMember, to, voters)
	case !l.answers(to):
		return fmt.Errorf("%w: member %d does not answer", ErrNoSuccessor, to)
	case !l.core.transferring():
		l.r.o.Log.Info("handing the lead over", "to", to)
		l.core.transfer(to)
	}
	return nil
}
