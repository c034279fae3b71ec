package replica

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

const (
	// promoteLagMax is how many entries of the leader's log a learner may lack when it gets
	// its vote: what it is about to have while writes go on.
	promoteLagMax = 1024
	// farewellTicks is how long the connections to a removed member are kept, for it to learn
	// what happened.
	farewellTicks = 3
)

// changing is the change of members that this leader has under way. The loop goroutine
// owns it.
type changing struct {
	number uint64 // 0: there is none
	done   []func(error)
}

// begin proposes a change, if this member leads and the rules allow it. done is called once,
// when the change is applied and no joint configuration is left, or will not be.
func (g *changing) begin(l *loop, number uint64, steps []Step, done func(error)) {
	k := &l.core.conf
	switch {
	case l.r.leads.Load() == 0 || !l.core.isLeader():
		done(fmt.Errorf("%w: member %d does not lead", errAgain, l.r.o.ID))
		return
	case l.core.raftApplied() < max(l.core.ownStart, k.index):
		done(fmt.Errorf("%w: member %d has not applied all that was before", errAgain, l.r.o.ID))
		return
	case k.last == number && !isJoint(k.state):
		done(nil) // asked again: it is done
		return
	case g.number == number || k.last == number:
		g.number = number
		g.done = append(g.done, done)
		return
	case g.number != 0 || isJoint(k.state):
		done(fmt.Errorf("%w: it began behind entry %d", ErrChanging, k.index))
		return
	}
	after, err := l.judge(steps)
	if err == nil && !slices.Contains(after, l.core.id) {
		err = l.leave(after)
	}
	if err == nil {
		err = l.core.proposeConf(number, steps)
	}
	if err != nil {
		done(err)
		return
	}
	g.number, g.done = number, []func(error){done}
}

// end tells all that wait for the change.
func (g *changing) end(err error) {
	call(g.done, err)
	*g = changing{}
}

// settle is called when Raft wants nothing more: it looks what has become of the change.
func (g *changing) settle(c *core) {
	applied := c.conf.last == g.number
	switch {
	case g.number == 0:
	case applied && !isJoint(c.conf.state):
		if c.raftApplied() >= c.conf.index {
			g.end(nil)
		}
	case !c.isLeader():
		g.end(fmt.Errorf("%w: member %d lost the lead", errAgain, c.id))
	case !applied && c.proposedConf != g.number: // Raft has its own idea of what is still under way
		g.end(fmt.Errorf("%w: the leader has not applied it yet", ErrChanging))
	}
}

// leave hands the lead over to one of those who keep a vote: a leader does not remove
// itself. The change is then the next one's.
func (l *loop) leave(after []uint64) error {
	to := l.successor(after)
	switch {
	case to == 0 && slices.ContainsFunc(after, func(id uint64) bool { return id != l.core.id && l.answers(id) }):
		return fmt.Errorf("%w: no other voter has all of the log of member %d yet", errAgain, l.core.id)
	case to == 0:
		return fmt.Errorf("%w to replace member %d, which leads", ErrNoSuccessor, l.core.id)
	}
	if !l.core.transferring() {
		l.r.o.Log.Info("handing the lead over before a change of the members", "to", to)
		l.core.transfer(to)
	}
	return fmt.Errorf("%w: member %d hands it over to member %d", errAgain, l.core.id, to)
}

// successor returns which of voters is best fit to lead next, 0 if none is.
func (l *loop) successor(voters []uint64) uint64 {
	return l.core.successor(func(id uint64) bool { return slices.Contains(voters, id) && l.answers(id) })
}

// answers reports whether a member was heard of within an election timeout.
func (l *loop) answers(id uint64) bool {
	at, heard := l.heard[id]
	return id == l.core.id || heard && l.r.o.Now()-at <= electionTicks*l.r.o.Tick
}

// judge returns the voters after a change, or which rule forbids it.
func (l *loop) judge(steps []Step) (after []uint64, err error) {
	s := l.core.conf.state
	if len(steps) == 0 {
		return nil, fmt.Errorf("%w: a change without steps", ErrMember)
	}
	after = slices.Clone(s.GetVoters())
	addresses := maps.Clone(l.core.conf.addresses)
	seen := map[uint64]bool{}
	for _, step := range steps {
		switch {
		case step.ID == 0 || step.ID > MaxMemberID:
			return nil, fmt.Errorf("%w: member %d: want an id from 1 to %d", ErrMember, step.ID, MaxMemberID)
		case seen[step.ID]:
			return nil, fmt.Errorf("%w: member %d is in two steps of one change", ErrMember, step.ID)
		}
		seen[step.ID] = true
		if err := l.judgeStep(step, addresses); err != nil {
			return nil, err
		}
		switch step.Kind {
		case Promote:
			after = append(after, step.ID)
		case Demote, Remove:
			after = slices.DeleteFunc(after, func(id uint64) bool { return id == step.ID })
			if step.Kind == Remove {
				delete(addresses, step.ID)
			}
		}
	}
	return after, l.judgeQuorum(s.GetVoters(), after)
}

// judgeQuorum refuses to let the ensemble lose its majority.
func (l *loop) judgeQuorum(before, after []uint64) error {
	answering := 0
	for _, id := range after {
		if l.answers(id) {
			answering++
		}
	}
	switch need := len(after)/2 + 1; {
	case len(after) == 0:
		return fmt.Errorf("%w: member %d is the last voter", ErrNoQuorum, before[0])
	case answering < need && !slices.Equal(before, after) && l.r.o.Now()-l.ledSince < electionTicks*l.r.o.Tick:
		return fmt.Errorf("%w: not all members have answered their new leader", errAgain)
	case answering < need && !slices.Equal(before, after):
		return fmt.Errorf("%w: of the %d voters then, %v, only %d answer, and %d must", ErrNoQuorum, len(after), after, answering, need)
	}
	return nil
}

// judgeStep applies the rules of one step. addresses are those behind the steps before it.
func (l *loop) judgeStep(step Step, addresses map[uint64]string) error {
	k := &l.core.conf
	ids := memberIDs(k.state)
	isMember, votes := slices.Contains(ids, step.ID), slices.Contains(k.state.GetVoters(), step.ID)
	if !isMember && step.Kind != AddLearner {
		return fmt.Errorf("%w: member %d is none: the members are %v", ErrMember, step.ID, ids)
	}
	switch step.Kind {
	case AddLearner:
		switch {
		case isMember:
			return fmt.Errorf("%w: the id %d is in use", ErrMember, step.ID)
		case slices.Contains(k.removed, step.ID):
			m := listMembers(k, 0)
			return fmt.Errorf("%w: the id %d was a member's that was removed, and ids are never used again: the next free one is %d",
				ErrMember, step.ID, m.Free())
		case l.r.o.Network == nil:
			return fmt.Errorf("%w: member %d does not listen for others", ErrMember, l.core.id)
		}
		for _, id := range ids {
			if k.addresses[id] == "" {
				return fmt.Errorf("%w: the address of member %d is not known, so a new member could not reach it", ErrMember, id)
			}
		}
		return judgeAddress(step, addresses)
	case Promote:
		if votes {
			return fmt.Errorf("%w: member %d has a vote already", ErrMember, step.ID)
		}
		return l.judgePromotion(step.ID)
	case Demote:
		if !votes {
			return fmt.Errorf("%w: member %d has no vote to lose", ErrMember, step.ID)
		}
	case Remove:
	case SetAddress:
		return judgeAddress(step, addresses)
	default:
		return fmt.Errorf("%w: a step of unknown kind %d", ErrMember, step.Kind)
	}
	return nil
}

// judgeAddress takes a new address into addresses.
func judgeAddress(step Step, addresses map[uint64]string) error {
	host, port, err := net.SplitHostPort(step.Address)
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil || n == 0 || host == "" || len(step.Address) > addressMax {
		return fmt.Errorf("%w: the address %.300q of member %d must be HOST:PORT", ErrMember, step.Address, step.ID)
	}
	for id, address := range addresses {
		if address == step.Address && id != step.ID {
			return fmt.Errorf("%w: the address %s of member %d is in use by member %d", ErrMember, step.Address, step.ID, id)
		}
	}
	addresses[step.ID] = step.Address
	return nil
}

// judgePromotion refuses a vote to a learner that would make the ensemble wait for it.
func (l *loop) judgePromotion(id uint64) error {
	last, p := l.r.log.lastIndex(), l.core.progress()[id]
	address := l.core.conf.addresses[id]
	switch {
	case !l.answers(id):
		return fmt.Errorf("%w: member %d at %s does not answer", ErrBehind, id, address)
	case p.State == tracker.StateSnapshot:
		return fmt.Errorf("%w: member %d at %s is being sent a snapshot, up to entry %d", ErrBehind, id, address, p.PendingSnapshot)
	case p.Match+promoteLagMax < last:
		return fmt.Errorf("%w: member %d at %s lacks %d of the log's entries up to %d, more than %d",
			ErrBehind, id, address, last-p.Match, last, promoteLagMax)
	}
	return nil
}

// listMembers describes the members as this leader sees them, or else as it knows them.
func (l *loop) listMembers() Members {
	m := listMembers(&l.core.conf, l.core.leader)
	if !l.core.isLeader() {
		return m
	}
	m.Current, m.Changing = true, m.Changing || l.changing.number != 0
	last, progress := l.r.log.lastIndex(), l.core.progress()
	for i := range m.List {
		e := &m.List[i]
		e.Answering = l.answers(e.ID)
		if e.Match = progress[e.ID].Match; e.Match < last {
			e.Lag = last - e.Match
		}
	}
	return m
}

// raftApplied is up to where Raft knows that entries were applied.
func (c *core) raftApplied() uint64 { return c.node.BasicStatus().Applied }

// progress returns what this leader knows of the members' logs.
func (c *core) progress() map[uint64]tracker.Progress {
	all := map[uint64]tracker.Progress{}
	c.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) { all[id] = p })
	return all
}

// proposeConf proposes a change of the members.
func (c *core) proposeConf(number uint64, steps []Step) error {
	addresses := maps.Clone(c.conf.addresses)
	cc := &raftpb.ConfChangeV2{}
	for _, s := range steps {
		typ := raftpb.ConfChangeUpdateNode
		switch s.Kind {
		case AddLearner, Demote:
			typ = raftpb.ConfChangeAddLearnerNode
		case Promote:
			typ = raftpb.ConfChangeAddNode
		case Remove:
			typ = raftpb.ConfChangeRemoveNode
		}
		if s.Address != "" && (s.Kind == AddLearner || s.Kind == SetAddress) {
			addresses[s.ID] = s.Address
		}
		cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: typ.Enum(), NodeId: new(s.ID)})
	}
	cc.Context = appendMembers(nil, members{addresses: addresses, last: number})
	c.proposedConf = 0
	if err := c.node.ProposeConfChange(cc); err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return nil
}

// observeConf takes note of the changes of the members among the leader's own entries.
func (c *core) observeConf(entries []*raftpb.Entry) {
	for _, e := range entries {
		if !isConfChange(e) {
			continue
		}
		cc := new(raftpb.ConfChangeV2)
		if proto.Unmarshal(e.GetData(), cc) == nil && len(cc.GetContext()) > 0 {
			if m, err := decodeMembers(cc.GetContext()); err == nil {
				c.proposedConf = m.last
			}
		}
	}
}
