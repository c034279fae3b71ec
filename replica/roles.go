package replica

import (
	"time"

	"go.etcd.io/raft/v3"
)

// told is what was last logged of who leads. The loop goroutine owns it.
type told struct {
	leader, term uint64
	role         raft.StateType
	lostAt       time.Duration // when the last leader was lost, by Options.Now
}

// lose takes note that there is no leader any more, and that the log says so.
func (t *told) lose(now time.Duration) { t.leader, t.lostAt = 0, now }

// tellRole logs who leads from now on, who leads no more, and why.
func (l *loop) tellRole() {
	c, t, now, log := l.core, &l.told, l.r.o.Now(), l.r.o.Log
	if c.sole() { // there is nobody else to lead
		*t = told{leader: c.leader, term: c.term, role: c.role}
		return
	}
	switch was := t.leader; {
	case c.leader == was:
	case c.leader == 0 && was == c.id && c.term > t.term:
		log.Warn("this member leads no more: another one has a higher term", "term", c.term)
	case c.leader == 0 && was == c.id:
		log.Warn("this member leads no more: a majority does not answer", "term", c.term)
	case c.leader == 0:
		log.Warn("the leader is silent", "leader", was, "term", t.term, "for_ms", (now - l.heard[was]).Milliseconds())
	default:
		l.r.stats.leaderChanges.Add(1)
		text := "another member leads"
		if c.leader == c.id {
			text = "this member was elected and leads"
		}
		if was != 0 { // the lead went over without a gap that was seen here
			t.lostAt = now
		}
		log.Info(text, "leader", c.leader, "term", c.term, "without_leader_ms", (now - t.lostAt).Milliseconds())
	}
	if c.role == raft.StateCandidate && (t.role != c.role || t.term != c.term) {
		l.r.stats.elections.Add(1)
		log.Info("this member stands for election", "term", c.term)
	}
	if c.leader == 0 && t.leader != 0 {
		t.lostAt = now
	}
	t.leader, t.term, t.role = c.leader, c.term, c.role
}
