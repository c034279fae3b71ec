package server

import (
	"fmt"

	"github.com/tenure-dev/tenure/replica"
)

// simReplacement puts a new member in the place of another one, step by step, as an operator
// would: each step is asked of whoever leads, again and again until it is done.
type simReplacement struct {
	old, joins *simMember
	steps      []replica.Change
}

// simMembersMax bounds the members that there ever are in a run.
const simMembersMax = 7

// replace begins to replace a member, unless another one is being replaced.
func (s *sim) replace(old *simMember) {
	if s.replacing != nil || len(s.members) >= simMembersMax {
		return
	}
	s.injected("member being replaced")
	m := newSimMember(s, uint64(len(s.members)+1))
	m.join = true
	s.members = append(s.members, m)
	change := func(kind replica.StepKind, id uint64, address string) replica.Change {
		return replica.Change{Number: s.rng.Uint64(), Steps: []replica.Step{{Kind: kind, ID: id, Address: address}}}
	}
	s.replacing = &simReplacement{old: old, joins: m, steps: []replica.Change{
		change(replica.AddLearner, m.id, fmt.Sprintf("member-%d:1", m.id)), change(replica.Promote, m.id, ""), change(replica.Remove, old.id, "")}}
	m.start()
	s.after(s.between(10*ms, 200*ms), s.goOnReplacing)
}

// goOnReplacing asks the leader for the next step.
func (s *sim) goOnReplacing() {
	r := s.replacing
	l := s.leader()
	if l == nil || l.paused {
		s.after(150*ms, s.goOnReplacing)
		return
	}
	answered, gen := false, l.gen
	done := func(err error) {
		if answered {
			return
		}
		answered = true
		s.stepDone(r, err)
	}
	l.input(func(m *simMember) { m.rep.BeginChange(r.steps[0], done) })
	s.after(1500*ms, func() { // the answer may have been lost with the leader
		if !answered {
			s.note("no answer to a change from member %d, process %d", l.id, gen)
			done(errSimBroken)
		}
	})
}

func (s *sim) stepDone(r *simReplacement, err error) {
	s.note("change %v: %v", r.steps[0].Steps, err) // a leader that is none any more may refuse
	if err == nil {
		s.count(fmt.Sprintf("membership changed: step %d of 3", 4-len(r.steps)))
		r.steps = r.steps[1:]
	}
	if len(r.steps) > 0 {
		s.after(s.between(20*ms, 200*ms), s.goOnReplacing)
		return
	}
	s.replacing = nil
	r.old.lost = true
	if r.old.srv != nil {
		r.old.stop("removed")
	}
}
