package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Goal: what all members say together gives the ensemble's state and problems in words.
// Method: a table of what three or five members say, and what must come of it.
func TestEnsembleIsJudged(t *testing.T) {
	member := func(id uint64, role string, applied uint64, digests ...DigestAt) MemberStatus {
		return MemberStatus{ID: id, Role: role, Voter: role != "learner", Term: 7, Applied: applied, Commit: applied, Digests: digests}
	}
	silent := MemberStatus{ID: 3, Voter: true, Problems: []string{"not reachable: connection refused"}}
	slow := member(3, "follower", 100)
	slow.Problems = []string{"disk: a sync of the log takes 300 ms"}
	for _, row := range []struct {
		name     string
		members  []MemberStatus
		state    string
		problems []string // of the ensemble
		third    []string // of the last member
	}{
		{"all well", []MemberStatus{member(1, "leader", 100), member(2, "follower", 100), member(3, "follower", 99)}, StateHealthy, nil, nil},
		{"alone", []MemberStatus{member(1, "leader", 100)}, StateHealthy, nil, nil},
		{"one down", []MemberStatus{member(1, "leader", 100), member(2, "follower", 100), silent}, StateDegraded,
			[]string{"only 2 of 3 voters: one more failure stops writes"}, silent.Problems},
		{"one of five down", []MemberStatus{member(1, "leader", 100), member(2, "follower", 100), member(4, "follower", 100), member(5, "follower", 100), silent},
			StateDegraded, nil, silent.Problems},
		{"two down", []MemberStatus{member(1, "candidate", 100), silent, silent}, StateNoQuorum,
			[]string{"no quorum: 1 of 3 voters can be reached, 2 are needed"}, silent.Problems},
		{"learners do not count", []MemberStatus{member(1, "follower", 100), silent, member(4, "learner", 100), silent}, StateNoQuorum,
			[]string{"no quorum: 1 of 3 voters can be reached, 2 are needed"}, silent.Problems},
		{"electing", []MemberStatus{member(1, "follower", 100), member(2, "candidate", 100), member(3, "follower", 100)}, StateNoQuorum,
			[]string{"no leader, though enough voters can be reached"}, nil},
		{"behind", []MemberStatus{member(1, "leader", 120_100), member(2, "follower", 120_100), member(3, "follower", 100)}, StateDegraded,
			nil, []string{"log is 120000 entries behind"}},
		{"slow disk", []MemberStatus{member(1, "leader", 100), member(2, "follower", 100), slow}, StateDegraded, nil, slow.Problems},
		{"goes on while it answers", []MemberStatus{member(1, "leader", 100), member(2, "follower", 100),
			{ID: 3, Role: "follower", Voter: true, Applied: 102, Commit: 101}}, StateHealthy, nil, nil},
		{"another digest", []MemberStatus{member(1, "leader", 3000, DigestAt{1024, "a"}, DigestAt{2048, "b"}, DigestAt{3000, "c"}),
			member(2, "follower", 3000, DigestAt{2048, "b"}, DigestAt{3000, "c"}), member(3, "follower", 2999, DigestAt{2048, "x"}, DigestAt{2999, "y"})}, StateDegraded,
			nil, []string{"digest differs from the leader's at entry 2048"}},
	} {
		e := judgeEnsemble(row.members)
		last := e.Members[len(e.Members)-1]
		if e.State != row.state || !reflect.DeepEqual(e.Problems, row.problems) || !reflect.DeepEqual(last.Problems, row.third) {
			t.Errorf("%s: %q, %q, of the last member %q", row.name, e.State, e.Problems, last.Problems)
		}
	}
}

// Goal: where growth is refused for the sake of another member, no setting of this one is blamed.
// Method: a report of a full disk, as another member's question bears it.
func TestProblemsOfAFullEnsemble(t *testing.T) {
	s := startServer(t, Config{})
	if list := s.problems(0, 0); len(list) != 0 {
		t.Errorf("problems %q", list)
	}
	s.reports.note(2, true, s.now())
	if list := s.problems(0, 0); len(list) != 1 || !strings.Contains(list[0], "another member") {
		t.Errorf("another member's disk is full, and the problems here are %q", list)
	}
}

// Goal: digests are kept for every 1024th entry and the newest, not more than a bound.
func TestDigestsAreKept(t *testing.T) {
	var d digests
	if len(d.list()) != 0 {
		t.Error("digests of nothing")
	}
	for i := uint64(1); i <= (digestsKept+3)*digestEvery+5; i++ {
		d.note(i, i)
	}
	list := d.list()
	if n := len(list); n != digestsKept+1 || list[0].Index != 4*digestEvery || list[n-1] != (DigestAt{(digestsKept+3)*digestEvery + 5, "8c05"}) {
		t.Errorf("%d digests, %v to %v", n, list[0], list[n-1])
	}
}

// Goal: syncs count for a minute, by their mean and their maximum.
func TestSyncTimesOfTheLastMinute(t *testing.T) {
	var s syncTimes
	const second = int64(1e9)
	if mean, most := s.lastMinute(second); mean != 0 || most != 0 {
		t.Errorf("before the first: %d, %d", mean, most)
	}
	s.observe(10*second, 900)
	s.observe(40*second, 100)
	s.observe(40*second+1, 200)
	for now, want := range map[int64][2]int64{41: {400, 900}, 69: {400, 900}, 70: {150, 200}, 99: {150, 200}, 100: {0, 0}} {
		if mean, most := s.lastMinute(now * second); mean != want[0] || most != want[1] {
			t.Errorf("at %d s: %d, %d, want %v", now, mean, most, want)
		}
	}
	s.observe(100*second, 7) // in the place of 40 s
	if mean, most := s.lastMinute(100 * second); mean != 7 || most != 7 {
		t.Errorf("a minute later: %d, %d", mean, most)
	}
}

// readStatus gets /v1/status of a member.
func readStatus(t *testing.T, s *Server) (e EnsembleStatus) {
	t.Helper()
	r, err := http.Get("http://" + s.Addr().String() + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r.Status, err)
	}
	return e
}

// Goal: every member tells the same of all members; without a quorum and of members that
// are down, too, and says what is wrong. Method: three members in one process, of which a
// follower and then the leader stop; a write in between.
func TestStatusOfAllMembers(t *testing.T) {
	t.Parallel()
	configs := memberConfigs(t, 3)
	for i := range configs {
		configs[i].ElectionTimeout = time.Second // the lead stays where it is
	}
	list := startMembers(t, configs)
	waitFor(t, "a leader", ensembleDeadline, func() bool { return leaderOf(list) != nil })
	leader := leaderOf(list)
	openRaw(t, leader).must("/a", "x", persistent)
	for _, s := range list {
		waitFor(t, "all are well", ensembleDeadline, func() bool { return readStatus(t, s).State == StateHealthy })
		waitFor(t, "all have the same", ensembleDeadline, func() bool {
			e := readStatus(t, s)
			first := e.Members[0]
			for _, m := range e.Members {
				if m.Applied != first.Applied || m.Digest != first.Digest || m.Zxid != first.Zxid || m.Lag != 0 {
					return false
				}
			}
			return true
		})
	}
	e := readStatus(t, leader)
	if len(e.Members) != 3 || e.AskedOf != uint64(leader.cfg.MemberID) || len(e.Cluster) != 16 || len(e.Problems) != 0 {
		t.Fatalf("%+v", e)
	}
	for i, m := range e.Members {
		s := list[i]
		role := "follower"
		if s == leader {
			role = "leader"
		}
		if m.ID != uint64(i+1) || m.Role != role || !m.Voter || !m.Serving || m.Leader != uint64(leader.cfg.MemberID) || m.Address != s.cfg.PeerListen ||
			m.Listen != s.Addr().String() || m.ZKListen != s.ZKAddr().String() || m.Version != Version || len(m.Problems) != 0 {
			t.Errorf("member %d: %+v", i+1, m)
		}
		if len(m.Peers) != 2 || !m.Peers[0].Connected || !m.Peers[1].Connected || m.SyncMaxMs <= 0 {
			t.Errorf("member %d: peers %+v, syncs of %v ms", i+1, m.Peers, m.SyncMaxMs)
		}
		if (m.Sessions == 1) != (s == leader) {
			t.Errorf("member %d: %d sessions", i+1, m.Sessions)
		}
	}
	rest := append(list[:leader.cfg.MemberID-1:leader.cfg.MemberID-1], list[leader.cfg.MemberID:]...)
	stopServer(t, rest[0])
	waitFor(t, "one more failure stops writes", ensembleDeadline, func() bool {
		e := readStatus(t, rest[1])
		m := e.Members[rest[0].cfg.MemberID-1]
		return e.State == StateDegraded && len(e.Problems) == 1 && strings.Contains(e.Problems[0], "only 2 of 3 voters") &&
			m.Role == "" && len(m.Problems) == 1 && strings.Contains(m.Problems[0], "connection refused")
	})
	stopServer(t, leader)
	waitFor(t, "no quorum", ensembleDeadline, func() bool {
		e := readStatus(t, rest[1])
		m := e.Members[rest[1].cfg.MemberID-1]
		return e.State == StateNoQuorum && !m.Serving && strings.Contains(strings.Join(m.Problems, ";"), "no leader")
	})
}
