package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/server"
)

// Goal: the table of members is readable and complete, also where some cannot be reached,
// and what is wrong is below in words. Method: compare with the text as it should be.
func TestEnsembleTable(t *testing.T) {
	a, stdout, _ := testApp(outputTable)
	e := server.EnsembleStatus{Cluster: "00112233445566aa", State: server.StateDegraded, AskedOf: 1, Members: []server.MemberStatus{
		{ID: 1, Role: "leader", Term: 7, Applied: 120_100, SyncMeanMs: 0.31, SyncMaxMs: 12.25, Sessions: 4, Watches: 10, Address: "zoo1:2182", Listen: "10.0.0.1:2180",
			Peers: []server.PeerStatus{{ID: 2, Connected: true, RTTMs: 0.42}, {ID: 3}}},
		{ID: 2, Role: "follower", Term: 7, Applied: 100, Lag: 120_000, SyncMeanMs: 300, SyncMaxMs: 312, Address: "zoo2:2182", Listen: "10.0.0.2:2180",
			Problems: []string{"disk: a sync of the log takes 300 ms", "log is 120000 entries behind"}},
		{ID: 3, Address: "zoo3:2182", Problems: []string{"not reachable: \x1b[0m"}},
	}, Problems: []string{"only 2 of 3 voters: one more failure stops writes"}}
	if err := a.printEnsemble(&e); err != nil {
		t.Fatal(err)
	}
	a.out.Flush()
	want := `ensemble 00112233445566aa: degraded (asked of member 1)

MEMBER  ROLE      TERM  APPLIED  LAG     SYNC MEAN/MAX   SESSIONS  WATCHES  RTT     CLIENTS AT     MEMBERS AT
1       leader    7     120100   0       0.3/12.2 ms     4         10       0.4 ms  10.0.0.1:2180  zoo1:2182
2       follower  7     100      120000  300.0/312.0 ms  0         0        -       10.0.0.2:2180  zoo2:2182
3       -         -     -        -       -               -         -        -       -              zoo3:2182

member 2: disk: a sync of the log takes 300 ms
member 2: log is 120000 entries behind
member 3: not reachable: \x1b[0m
only 2 of 3 voters: one more failure stops writes
`
	if stdout.String() != want {
		t.Errorf("printed\n%swant\n%s", stdout, want)
	}
}

// Goal: the exit code tells the state of the ensemble apart, and one server that answers is
// enough. Method: servers that answer each state, and one that is gone before them.
func TestEnsembleExitCodes(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for state, want := range map[string]int{server.StateHealthy: exitOK, server.StateDegraded: exitDegraded, server.StateNoQuorum: exitUnreachable, "": exitUnreachable} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/status" || state == "" {
				http.Error(w, "no", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintf(w, `{"state":%q,"members":[{"id":1,"role":"leader"}]}`, state)
		}))
		a, stdout, _ := testApp(outputTable)
		a.endpoints = []string{strings.TrimPrefix(gone.URL, "http://"), strings.TrimPrefix(s.URL, "http://")}
		err := a.ensemble(t.Context())
		a.out.Flush()
		if got := exitCode(err); got != want || state != "" && !strings.Contains(stdout.String(), state) {
			t.Errorf("%q: exit code %d, want %d; %v\n%s", state, got, want, err, stdout)
		}
		s.Close()
	}
}
