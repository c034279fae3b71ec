package tests

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// Goal: the leader's metrics and ZooKeeper's words show soon which followers are there, and
// that one which lags is not in sync. Method: a follower is killed, stopped by SIGSTOP, cut
// off, and its disk hangs under load, one after the other; each time both figures must
// fall, or that of the synced ones alone, within 10 s, and come back within 10 s.
func TestC141EnsembleFollowersInMetrics(t *testing.T) {
	t.Parallel()
	e := startEnsemble(t, ensembleOptions{links: true, faults: true})
	var clients []*client.Client
	for range 4 {
		clients = append(clients, e.connect(client.Options{}))
	}
	load := startLoad(t, "/load", 2*time.Millisecond, clients...)
	for _, test := range []struct {
		name              string
		begin, end        func(*ensembleMember)
		followers, synced float64
	}{
		{"nothing", func(*ensembleMember) {}, func(*ensembleMember) {}, 2, 2},
		{"kill -9", (*ensembleMember).kill, (*ensembleMember).start, 1, 1},
		{"SIGSTOP", (*ensembleMember).pause, (*ensembleMember).resume, 1, 1},
		{"cut off", func(m *ensembleMember) { e.links.isolate(m.id, linkHeld) }, func(m *ensembleMember) { e.links.isolate(m.id, linkOpen) }, 1, 1},
		{"hanging disk", func(m *ensembleMember) {
			m.disk("log sync 1h", "log write 1h")
			e.waitLeader().goOn(e, 1200)
		}, func(m *ensembleMember) { m.disk() }, 2, 1},
	} {
		follower := e.follower()
		test.begin(follower)
		fell := e.eventually(10*time.Second, test.name, func() error { return e.shows(test.followers, test.synced) })
		test.end(follower)
		rose := e.eventually(10*time.Second, "after "+test.name, func() error { return e.shows(2, 2) })
		t.Logf("%s: shown after %v, its end after %v", test.name, fell, rose)
	}
	load.end()
}

// goOn waits until the leader has applied so many entries more.
func (m *ensembleMember) goOn(e *ensemble, entries uint64) {
	e.t.Helper()
	before, err := m.status()
	if err != nil {
		e.t.Fatal(err)
	}
	e.eventually(time.Minute, "entries", func() error {
		if s, err := m.status(); err != nil || s.Applied < before.Applied+entries {
			return fmt.Errorf("%d of %d: %v", s.Applied-before.Applied, entries, err)
		}
		return nil
	})
}

// shows wants the leader's figures of its followers, in both of its forms. Another one may
// lead meanwhile, where a disk is slow by itself.
func (e *ensemble) shows(followers, synced float64) error {
	m := e.leader()
	if m == nil {
		return errors.New("nobody leads")
	}
	all, err := m.metrics()
	if err != nil {
		return err
	}
	if all["tenure_followers"] != followers || all["tenure_synced_followers"] != synced {
		return fmt.Errorf("followers %v, synced %v; must be %v and %v",
			all["tenure_followers"], all["tenure_synced_followers"], followers, synced)
	}
	words, err := fourLetters(m.zk, "mntr")
	for _, want := range []string{"zk_server_state\tleader", fmt.Sprintf("zk_followers\t%v", followers), fmt.Sprintf("zk_synced_followers\t%v", synced)} {
		if err == nil && !strings.Contains(words, want+"\n") {
			err = fmt.Errorf("mntr lacks %q", want)
		}
	}
	return err
}
