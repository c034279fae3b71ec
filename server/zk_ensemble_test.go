package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// Goal: monitoring tells the truth of an ensemble in ZooKeeper's words and in Tenure's: who
// leads, who follows, and how many of them are there, within 10 s of a change. Method:
// three members; a follower stops and comes back.
func TestC141WordsOfAnEnsemble(t *testing.T) {
	t.Parallel()
	configs := memberConfigs(t, 3)
	list := rank(t, startMembers(t, configs))
	leader, follower := list[0], list[1]
	figure := func(s *Server, key string) string { return figuresOf(t, s.ask(t, "mntr"))[key] }
	followers := func(want string) {
		t.Helper()
		waitFor(t, want+" followers", 10e9, func() bool {
			f := figuresOf(t, leader.ask(t, "mntr"))
			return f["followers"] == want && f["synced_followers"] == want && f["learners"] == want && f["quorum_size"] == "3"
		})
		_, text := fetch(t, http.MethodGet, "http://"+leader.Addr().String()+"/metrics", nil)
		for _, line := range []string{"tenure_followers " + want, "tenure_synced_followers " + want, "tenure_is_leader 1", "tenure_differing_members 0"} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("/metrics has no %q", line)
			}
		}
	}
	followers("2")
	for _, row := range []struct {
		s           *Server
		mode, state string
	}{{leader, "leader", "leading - broadcast"}, {follower, "follower", "following - broadcast"}} {
		if got := row.s.ask(t, "srvr"); !strings.Contains(got, "\nMode: "+row.mode+"\n") {
			t.Errorf("srvr of the %s: %s", row.mode, got)
		}
		if mode, state := figure(row.s, "server_state"), figure(row.s, "peer_state"); mode != row.mode || state != row.state {
			t.Errorf("mntr of the %s: %q, %q", row.mode, mode, state)
		}
		id := leader.cfg.MemberID
		want := fmt.Sprintf("\"is_leader\" : %t,\n  \"leader_id\" : %d,\n  \"leader_ip\" : \"127.0.0.1\"", row.s == leader, id)
		if _, got := command(t, row.s, "leader", nil); !strings.Contains(got, want) {
			t.Errorf("leader, asked of the %s: %s", row.mode, got)
		}
	}
	if got := figure(follower, "followers"); got != "" {
		t.Errorf("a follower has %s followers", got)
	}
	if _, got := command(t, follower, "voting_view", nil); strings.Count(got, "server_addresses") != 3 || !strings.Contains(got, configs[2].PeerListen) {
		t.Errorf("voting_view: %s", got)
	}
	_, text := fetch(t, http.MethodGet, "http://"+follower.Addr().String()+"/metrics", nil)
	for _, want := range []string{"\ntenure_leader_changes_total ", "\ntenure_leader_questions_total ", fmt.Sprintf("\ntenure_peer_connected{peer=\"%d\"} 1\n", leader.cfg.MemberID), "\ntenure_followers 0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics of a follower has no %q", want)
		}
	}
	stopServer(t, follower)
	followers("1")
	waitServing(t, startServer(t, configs[follower.cfg.MemberID-1]))
	followers("2")
}

// Goal: a member whose state differs is counted, told of once, and named. Method: what two
// members say, with one digest changed.
func TestDifferingMemberIsTold(t *testing.T) {
	e := judgeEnsemble([]MemberStatus{
		{ID: 1, Role: "leader", Voter: true, Applied: 5, Commit: 5, Digests: []DigestAt{{5, "a"}}},
		{ID: 2, Role: "follower", Voter: true, Applied: 5, Commit: 5, Digests: []DigestAt{{5, "b"}}},
		{ID: 3, Role: "learner", Applied: 5, Commit: 2 * syncedLag, Digests: []DigestAt{{5, "a"}}},
		{ID: 4, Voter: true},
	})
	e.AskedOf = 1
	if got, want := *countMembers(e), (memberFigures{Followers: 1, Learners: 1, Voters: 3, Differing: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	log := &strings.Builder{}
	s := newServer(Config{}.WithDefaults(), slog.New(slog.NewTextHandler(log, nil)))
	told := map[uint64]bool{}
	for range 2 {
		s.tellDiffering(e, told)
	}
	if n := strings.Count(log.String(), "differs"); n != 1 || !strings.Contains(log.String(), "member=2 at_entry=5") {
		t.Errorf("%d lines: %s", n, log)
	}
}
