package server

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// MemberStatus is what one member says of itself, and what the others see of it. It holds
// no secret, and nothing of clients or znodes but their numbers.
type MemberStatus struct {
	ID uint64 `json:"id"`
	// Role is leader, follower, learner, which has no vote, candidate or removed; "" if the
	// member could not be asked: then only ID, Address, Voter and Problems are known.
	Role    string `json:"role"`
	Voter   bool   `json:"voter"`
	Serving bool   `json:"serving"` // clients
	Leader  uint64 `json:"leader"`  // 0 if it knows of none
	Term    uint64 `json:"term"`
	// Applied and Commit are log entries; Lag is how many are committed somewhere and not
	// applied here.
	Applied uint64 `json:"applied"`
	Commit  uint64 `json:"commit"`
	Lag     uint64 `json:"lag"`
	// Digest is that of the state behind entry Applied, Digests those of earlier entries.
	Digest  string     `json:"digest"`
	Digests []DigestAt `json:"digests,omitempty"`
	// DiffersAt is the first entry known behind which the state is not the leader's, 0 if
	// there is none.
	DiffersAt uint64 `json:"differs_at,omitempty"`
	Zxid      string `json:"zxid"`
	// SyncMeanMs and SyncMaxMs are the syncs of the log within the last minute.
	SyncMeanMs float64 `json:"sync_mean_ms"`
	SyncMaxMs  float64 `json:"sync_max_ms"`
	// Sessions are those connected to this member.
	Sessions    int64 `json:"sessions"`
	Watches     int64 `json:"watches"`
	Connections int64 `json:"connections"`
	// Address is where the other members reach it, Listen, ZKListen and ZKTLSListen are where
	// clients do.
	Address     string       `json:"address,omitempty"`
	Listen      string       `json:"listen,omitempty"`
	ZKListen    string       `json:"zk_listen,omitempty"`
	ZKTLSListen string       `json:"zk_tls_listen,omitempty"`
	Version     string       `json:"version,omitempty"`
	UptimeMs    int64        `json:"uptime_ms"`
	Peers       []PeerStatus `json:"peers,omitempty"`
	// Problems are what is wrong, in words.
	Problems []string `json:"problems,omitempty"`
}

// PeerStatus is a member's connection to another one.
type PeerStatus struct {
	ID          uint64  `json:"id"`
	Connected   bool    `json:"connected"`
	RTTMs       float64 `json:"rtt_ms"`
	QueuedBytes int     `json:"queued_bytes"`
	Dropped     uint64  `json:"dropped"`
	Reconnects  uint64  `json:"reconnects"`
	Error       string  `json:"error,omitempty"` // the last one
}

// From when on a figure is a problem.
const (
	slowSync   = int64(100 * time.Millisecond) // mean
	stuckSync  = int64(time.Second)            // maximum
	worthALag  = 10_000                        // entries
	statusCall = "status"                      // the payload of the question for a MemberStatus
)

// ownStatus is what this member says of itself.
func (s *Server) ownStatus() *MemberStatus {
	f := s.figures()
	st := f.Replica
	mean, most := s.syncTimes.lastMinute(s.now())
	list := s.digests.list()
	m := &MemberStatus{
		ID: st.ID, Role: roleOf(&st), Voter: !st.IsLearner, Serving: s.ready() == nil, Leader: st.Leader, Term: st.Term,
		Applied: st.Applied, Commit: st.Committed, Digests: list, Zxid: fmt.Sprintf("0x%x", s.store.LastZxid()),
		SyncMeanMs: milliseconds(mean), SyncMaxMs: milliseconds(most),
		Sessions: s.connectedSessions(), Watches: f.Watches, Connections: f.Connections,
		Address: s.advertise(), Listen: s.Addr().String(), Version: Build().Version, UptimeMs: s.now() / 1e6,
		Peers: f.Peers, Problems: s.problems(mean, most),
	}
	if n := len(list); n > 0 { // of one moment
		m.Applied, m.Digest = list[n-1].Index, list[n-1].Digest
	} else {
		m.Digest = formatDigest(s.store.Digest())
	}
	if a := s.ZKAddr(); a != nil {
		m.ZKListen = a.String()
	}
	if a := s.ZKTLSAddr(); a != nil {
		m.ZKTLSListen = a.String()
	}
	return m
}

func milliseconds(ns int64) float64 { return float64(ns/1e3) / 1e3 }

// roleOf is a member's role in one word.
func roleOf(st *replica.Status) string {
	switch {
	case st.IsRemoved:
		return "removed"
	case st.IsLeader:
		return "leader"
	case st.IsLearner:
		return "learner"
	case st.IsCandidate:
		return "candidate"
	}
	return "follower"
}

// connectedSessions counts the sessions whose clients are connected here.
func (s *Server) connectedSessions() (n int64) {
	for _, c := range s.conns.all() {
		if c.live.Load() != nil {
			n++
		}
	}
	return n
}

// peerStatus lists the connections to the other members, by id.
func (s *Server) peerStatus() []PeerStatus {
	if s.network == nil {
		return nil
	}
	stats := s.network.Stats()
	list := make([]PeerStatus, 0, len(stats))
	for _, id := range sortedKeys(stats) {
		p := stats[id]
		list = append(list, PeerStatus{ID: id, Connected: p.Connected, RTTMs: milliseconds(int64(p.RTT)), QueuedBytes: p.QueuedBytes,
			Dropped: p.Dropped, Reconnects: p.Reconnects, Error: p.LastError})
	}
	return list
}

// problems are what this member knows to be wrong with itself.
func (s *Server) problems(mean, most int64) (list []string) {
	if err := s.ready(); err != nil {
		list = append(list, "serves no clients: "+err.Error())
	}
	switch {
	case mean >= slowSync:
		list = append(list, fmt.Sprintf("disk: a sync of the log takes %d ms", mean/1e6))
	case most >= stuckSync:
		list = append(list, fmt.Sprintf("disk: a sync of the log took %d ms", most/1e6))
	}
	switch {
	case s.diskFull.Load():
		list = append(list, "free disk space is below min-free-disk-bytes: growth is refused")
	case s.fullHere():
		list = append(list, "max-data-bytes is reached: growth is refused")
	case s.full():
		list = append(list, "another member has no room: growth is refused")
	}
	return list
}

// serveCall answers a question of another member.
func (s *Server) serveCall(_ uint64, payload []byte) ([]byte, error) {
	if string(payload) != statusCall {
		return nil, fmt.Errorf("a question that this version does not know: %.20q", payload)
	}
	return json.Marshal(s.ownStatus())
}
