package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// Goal: real partitions, of a network that loses packets instead of closing connections, are
// survived as those that other tests make of proxies. Method: members on hosts of their own
// on one switch; the leader's cable is pulled, then what it sends to the others is lost,
// then what it is sent. Each time the others must have a leader soon and acknowledge
// writes, and the old one nothing, and know; with the cable back all must have the same state.
func TestPartitionOnLAN(t *testing.T) {
	t.Parallel()
	if !runInLAN(t) {
		return
	}
	l := newLAN(t, 3)
	e := newLANEnsemble(t, l)
	e.startAll()
	load := newCrashLoad(t, e.connect, randomSeed(t), 3, 4)
	load.pause = 5 * time.Millisecond
	for _, test := range []struct {
		name        string
		break_, fix func(leader int)
	}{
		{"the leader's cable is pulled", l.pull, l.plug},
		{"what the leader sends is lost", func(leader int) { e.each(leader, func(o int) { l.lose(leader, o) }) },
			func(leader int) { e.each(leader, func(o int) { l.deliver(leader, o) }) }},
		{"what the leader is sent is lost", func(leader int) { e.each(leader, func(o int) { l.lose(o, leader) }) },
			func(leader int) { e.each(leader, func(o int) { l.deliver(o, leader) }) }},
	} {
		load.run(func() {
			leader := e.waitLeader()
			before, err := leader.status()
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(300 * time.Millisecond)
			test.break_(leader.id)
			took := e.eventually(10*time.Second, "another leader", func() error { return leads(e.others(leader), before.Term) })
			acked := load.acknowledged.Load()
			e.eventually(10*time.Second, "writes go on", func() error {
				if load.acknowledged.Load() < acked+100 {
					return errors.New("they stand still")
				}
				return nil
			})
			t.Logf("%s: another leader after %v", test.name, took)
			<-time.After(2 * electionTimeout)
			e.mustKnow(leader)
			test.fix(leader.id)
			e.eventually(10*time.Second, "the old leader follows", func() error {
				if s, err := leader.status(); err != nil || s.Role != "follower" {
					return fmt.Errorf("it is %s: %v", s.Role, err)
				}
				return nil
			})
		})
		load.quiet(func(ctx context.Context) {
			load.verify(ctx, test.name)
			e.sameState()
		})
	}
	mustRefuseAlone(t, l, e)
}

// each calls f with the ids of all other members.
func (e *ensemble) each(id int, f func(other int)) {
	for _, m := range e.others(e.member(id)) {
		f(m.id)
	}
}

// leads reports whether one of members leads in a later term.
func leads(members []*ensembleMember, term uint64) error {
	for _, m := range members {
		if s, err := m.status(); err == nil && s.Role == "leader" && s.Term > term {
			return nil
		}
	}
	return errors.New("nobody leads")
}

// mustKnow wants a member that hears nobody, or is not heard, to have given up the lead, if it can be asked.
func (e *ensemble) mustKnow(m *ensembleMember) {
	e.t.Helper()
	e.eventually(10*time.Second, "a leader without followers steps down", func() error {
		if s, err := m.status(); err == nil && s.Role == "leader" {
			return fmt.Errorf("it leads in term %d", s.Term)
		}
		return nil
	})
}

// mustRefuseAlone takes the two others away from a leader that its clients still reach.
func mustRefuseAlone(t *testing.T, l *lan, e *ensemble) {
	t.Helper()
	leader := e.waitLeader()
	c, reader := e.connectTo(leader, client.Options{}), e.connectTo(leader, client.Options{})
	mustCreate(t, c, "/alone")
	e.each(leader.id, l.pull)
	ctx, cancel := context.WithTimeout(t.Context(), 5*electionTimeout)
	defer cancel()
	mustNotAnswer(t, map[string]func() error{
		"set": func() error { _, err := c.Set(ctx, "/alone", nil, -1); return err },
		"get": func() error { _, _, err := reader.Get(ctx, "/alone", client.ReadOptions{}); return err },
	}).Wait()
	e.mustKnow(leader)
	e.each(leader.id, l.plug)
	if _, err := c.Set(t.Context(), "/alone", nil, -1); err != nil {
		t.Error(err)
	}
	e.sameState()
}
