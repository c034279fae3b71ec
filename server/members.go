package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// membersPatience bounds a change of the members: within it a client does not yet take its
// connection for dead, which answers nothing else meanwhile.
const membersPatience = 5 * time.Second

// errRemoved: this member serves nobody any more.
var errRemoved = errors.New("this member was removed from the ensemble")

// consults reports whether a call is answered by the ensemble and not by the state: by a
// goroutine of its own, which takes its time.
func (k *call) consults() bool {
	switch k.req.Op {
	case wire.OpReconfig:
		return k.reply == nil && k.c.srv.reconfigurable()
	case wire.OpMembers, wire.OpChangeMembers, wire.OpTransferLead:
		return k.reply == nil
	}
	return false
}

// reconfigurable reports whether ZooKeeper's reconfig may change the members.
func (s *Server) reconfigurable() bool { return s.cfg.ReconfigEnabled && s.network != nil }

// consultLocked lets the head of the queue be answered, once.
func (c *conn) consultLocked(k *call) bool {
	if k.state == callConsulted {
		return false
	}
	k.state = callConsulted
	go func() {
		reply := c.srv.consult(k, c.remote)
		c.mu.Lock()
		k.reply, k.state = reply, callWaiting
		start := c.startLocked()
		c.mu.Unlock()
		if start {
			c.srv.spawn(c)
		}
	}()
	return false
}

// consult answers a call about the members.
func (s *Server) consult(k *call, remote string) *wire.Reply {
	ctx, cancel := context.WithTimeout(s.running, membersPatience)
	defer cancel()
	if k.req.Op == wire.OpReconfig {
		return s.reconfig(ctx, k)
	}
	reply := &wire.Reply{Xid: k.req.Xid, Op: k.req.Op}
	m, err := s.membersOf(ctx, k.req.Body, remote)
	if err != nil {
		reply.Err, reply.Detail = memberError(err)
	} else {
		reply.Body = s.membersReply(&m)
	}
	return reply
}

func (s *Server) membersOf(ctx context.Context, body any, remote string) (replica.Members, error) {
	switch b := body.(type) {
	case *wire.ChangeMembers:
		c, err := changeOf(b)
		if err != nil {
			return replica.Members{}, err
		}
		s.log.Info("a change of the members is asked for", "remote", remote, "steps", c.Steps)
		return s.rep.Change(ctx, c)
	case *wire.TransferLead:
		if b.ID < 0 {
			return replica.Members{}, fmt.Errorf("%w: member %d: want an id, or 0 for whoever is fit best", replica.ErrMember, b.ID)
		}
		s.log.Info("a transfer of the lead is asked for", "remote", remote, "to", b.ID)
		if err := s.rep.TransferLeader(ctx, uint64(b.ID)); err != nil {
			return replica.Members{}, err
		}
	}
	return s.rep.Members(ctx)
}

// stepKinds are the kinds of step as replica has them.
var stepKinds = map[wire.MemberStepKind]replica.StepKind{
	wire.MemberAdd: replica.AddLearner, wire.MemberPromote: replica.Promote, wire.MemberDemote: replica.Demote,
	wire.MemberRemove: replica.Remove, wire.MemberMove: replica.SetAddress,
}

// changeOf translates a change, with addresses as everybody writes them.
func changeOf(b *wire.ChangeMembers) (replica.Change, error) {
	c := replica.Change{Number: uint64(b.Number)}
	for _, s := range b.Steps {
		step := replica.Step{Kind: stepKinds[s.Kind], ID: uint64(max(s.ID, 0)), Address: s.Address}
		if s.Kind == wire.MemberAdd || s.Kind == wire.MemberMove {
			address, err := canonicalAddress(s.Address)
			if err != nil {
				return c, &memberRule{s.Address, err}
			}
			step.Address = address
		}
		c.Steps = append(c.Steps, step)
	}
	return c, nil
}

// memberRule is an address that is refused before the leader is asked.
type memberRule struct {
	address string
	err     error
}

func (e *memberRule) Error() string { return "the address " + e.address + " " + e.err.Error() }
func (e *memberRule) Unwrap() error { return replica.ErrMember }

// memberError says what a client is told of an error.
func memberError(err error) (znode.Error, string) {
	code := znode.OperationTimeout
	switch {
	case errors.Is(err, replica.ErrMember):
		code = znode.BadArguments
	case errors.Is(err, replica.ErrChanging):
		code = znode.ReconfigInProgress
	case errors.Is(err, replica.ErrNoQuorum), errors.Is(err, replica.ErrBehind), errors.Is(err, replica.ErrNoSuccessor):
		code = znode.NewConfigNoQuorum
	}
	return code, strings.ReplaceAll(err.Error(), "replica: ", "")
}

// membersReply is what a client is told of the members.
func (s *Server) membersReply(m *replica.Members) *wire.MembersReply {
	r := &wire.MembersReply{Cluster: int64(s.rep.Cluster()), Leader: int32(m.Leader), Current: m.Current, Changing: m.Changing,
		Index: int64(m.Index), Members: []wire.MemberInfo{}, Removed: []int32{}, Free: int32(m.Free())}
	for i := range m.List {
		e := &m.List[i]
		r.Members = append(r.Members, wire.MemberInfo{ID: int32(e.ID), Address: e.Address, Voter: e.Voter,
			Answering: e.Answering, Match: int64(e.Match), Lag: int64(e.Lag)})
	}
	for _, id := range m.Removed {
		r.Removed = append(r.Removed, int32(id))
	}
	return r
}
