package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// The model is an ensemble of three around the real liveSessions, each with a znode.Tree for
// the replicated state: a log that is applied late, questions and answers that get lost,
// leaders that do not know yet that they are no more. Time is one number for all.
const (
	modelMembers  = 3
	modelSessions = 4
	modelTimeout  = int64(1000e6)
)

type model struct {
	t       *testing.T
	r       *rand.Rand
	now     int64
	log     []znode.Txn // committed
	members [modelMembers]*modelMember
	leader  int // of the newest term
	term    int
	binds   uint64

	pending  []modelProposal
	closed   map[session.ID]int64 // when the close was committed
	acked    map[session.ID]int64 // the newest acknowledged heartbeat
	decided  map[modelDecision]bool
	counts   map[string]int
	sessions []session.ID
}

// modelDecision is to expire a session, until the member that made it knows that its lead
// is over.
type modelDecision struct {
	id     session.ID
	owner  session.Owner
	member int
}

// modelProposal is on its way into the log; one with a term only in that.
type modelProposal struct {
	txn  znode.Txn
	term int
}

type modelMember struct {
	live    *liveSessions
	tree    *znode.Tree
	applied int
	origin  uint64
	links   map[uint64]*modelLink
	term    int  // the newest that it knows of
	told    bool // its liveSessions know of that
	settle  int  // as leader: confirms nothing before it has applied as much
	beats   []modelBeat
	ask     *modelAsk
}

// modelLink is a client's connection.
type modelLink struct {
	c    *conn
	id   session.ID
	owns session.Owner
}

type modelBeat struct {
	link *modelLink
	at   int64
}

// modelAsk is a question with who waits for it. It has a reply once it was put, an index
// once leadership was confirmed.
type modelAsk struct {
	payload, reply []byte
	beats          []modelBeat
	term, index    int
	answered       bool
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, r: rand.New(rand.NewPCG(seed, 0)), closed: map[session.ID]int64{}, acked: map[session.ID]int64{},
		decided: map[modelDecision]bool{}, counts: map[string]int{}}
	for i := range m.members {
		m.members[i] = &modelMember{tree: znode.NewTree()}
		m.restart(i)
	}
	m.elect(0)
	return m
}

// restart is a new process on member i's state.
func (m *model) restart(i int) {
	p := m.members[i]
	p.live, p.origin, p.links = newLiveSessions(), m.r.Uint64()|1, map[uint64]*modelLink{}
	p.beats, p.ask, p.told = nil, nil, true
	p.tree.Sessions(func(s *session.Session) bool { p.live.bound(s, m.now); return true })
	if m.leader == i && m.term > 0 {
		m.elect((i + 1) % modelMembers)
	}
	p.term = m.term
}

// elect makes member i the leader of a new term. The others learn of it later, and its own
// liveSessions, too. Expiries on their way are lost.
func (m *model) elect(i int) {
	m.term++
	m.leader = i
	p := m.members[i]
	p.term, p.told, p.settle, p.ask = m.term, false, len(m.log), nil
	m.counts["elections"]++
}

func (p *modelMember) leads(m *model, i int) bool { return m.leader == i && p.term == m.term }

// learn lets member i know the newest term, and then, later, its liveSessions.
func (m *model) learn(i int) {
	p := m.members[i]
	switch {
	case p.term < m.term:
		p.term, p.told, p.ask = m.term, false, m.lost(p)
	case p.told:
	case m.leader == i && p.applied >= p.settle:
		p.live.lead(uint64(p.term), m.now)
		p.told = true
	case m.leader != i:
		p.live.follow(m.now)
		p.told = true
		for d := range m.decided {
			if d.member == i {
				m.decided[d] = false
			}
		}
	}
}

// lost gives up the outstanding question: who waited for it waits for the next.
func (m *model) lost(p *modelMember) *modelAsk {
	if p.ask != nil && !p.ask.answered {
		p.beats = append(p.ask.beats, p.beats...)
		m.counts["lost"]++
		return nil
	}
	return p.ask
}

// connect opens a connection to member i that opens a session or resumes one.
func (m *model) connect(i int) {
	p := m.members[i]
	m.binds++
	owner := session.Owner{Origin: p.origin, Bind: m.binds}
	c := &conn{srv: &Server{outstanding: newBudget(1, 1)}}
	c.mu.working = true // there is no socket for a worker to write to
	link := &modelLink{c: c, owns: owner}
	p.links[owner.Bind] = link
	txn := znode.Txn{Owner: owner, Op: &znode.OpenSession{TimeoutMs: int32(modelTimeout / 1e6)}}
	if len(m.sessions) >= modelSessions {
		link.id = m.sessions[m.r.IntN(len(m.sessions))]
		txn.Op = &znode.ResumeSession{Session: link.id}
	}
	m.pending = append(m.pending, modelProposal{txn: txn})
}

// commit appends one proposal to the log, whichever; those of another term are lost.
func (m *model) commit() {
	m.pending = slices.DeleteFunc(m.pending, func(p modelProposal) bool { return p.term != 0 && p.term != m.term })
	if len(m.pending) == 0 {
		return
	}
	i := m.r.IntN(len(m.pending))
	m.log = append(m.log, m.pending[i].txn)
	m.pending = slices.Delete(m.pending, i, i+1)
	// What it leads to is known from here on. The newest state decides, so bring one there.
	oracle := znode.NewTree()
	for k := range m.log {
		r, d := oracle.Apply(znode.Stamp{}, &m.log[k])
		if k == len(m.log)-1 {
			m.committed(&m.log[k], &r, &d)
		}
	}
}

func (m *model) committed(txn *znode.Txn, r *znode.Result, d *znode.Delta) {
	if _, expiry := txn.Op.(*znode.CloseSession); expiry && r.Err == znode.SessionMoved {
		m.counts["undone expiries"]++
	}
	for _, e := range d.Sessions {
		if e.Session == nil {
			m.closed[e.ID] = m.now
			m.counts["expiries"]++
			m.sessions = slices.DeleteFunc(m.sessions, func(id session.ID) bool { return id == e.ID })
		} else if !slices.Contains(m.sessions, e.ID) {
			m.sessions = append(m.sessions, e.ID)
		}
		m.check(e.ID)
	}
}

// check is promise P6.
func (m *model) check(id session.ID) {
	heard, ok := m.acked[id]
	if closed, over := m.closed[id]; ok && over && closed < heard+modelTimeout {
		m.t.Errorf("session %v: a heartbeat of %d was acknowledged, and it expired at %d with timeout %d", id, heard, closed, modelTimeout)
	}
}

// apply lets member i apply the next entry, as publish does.
func (m *model) apply(i int) {
	p := m.members[i]
	if p.applied == len(m.log) {
		return
	}
	_, d := p.tree.Apply(znode.Stamp{}, &m.log[p.applied])
	p.applied++
	for _, e := range d.Sessions {
		if e.Session == nil {
			p.live.closed(e.ID).disown(overReason(e.ID))
			continue
		}
		if was := p.live.bound(e.Session, m.now); was != nil {
			was.disown(closeReason{closeMoved, movedText})
		}
		if link := p.links[e.Session.Owner.Bind]; link != nil && link.owns == e.Session.Owner {
			l := p.live.get(e.ID)
			link.id = e.ID
			l.conn.Store(link.c)
			link.c.live.Store(l)
		}
	}
}

// beat is a heartbeat at member i, of any connection there.
func (m *model) beat(i int) {
	p := m.members[i]
	for _, bind := range slices.Sorted(maps.Keys(p.links)) {
		link := p.links[bind]
		if m.r.IntN(3) > 0 || link.c.live.Load() == nil || link.c.mu.closing != nil {
			continue
		}
		if !p.live.touch(link.id, m.now) {
			link.c.close(overReason(link.id))
			continue
		}
		p.beats = append(p.beats, modelBeat{link, m.now})
	}
}

// acknowledge answers heartbeats, where their connections are still there.
func (m *model) acknowledge(beats []modelBeat) {
	for _, b := range beats {
		if b.link.c.mu.closing == nil {
			m.acked[b.link.id] = max(m.acked[b.link.id], b.at)
			m.counts["acknowledged"]++
			m.check(b.link.id)
		}
	}
}

// confirm is a step of the question that member i asks: made, put, confirmed, answered, and
// done once what it confirms is applied. Each may fail.
func (m *model) confirm(i int) {
	p, leader := m.members[i], m.members[m.leader]
	settled := leader.leads(m, m.leader) && leader.applied >= leader.settle
	switch a := p.ask; {
	case p.leads(m, i):
		if settled && p.applied == len(m.log) {
			m.acknowledge(p.beats)
			p.beats = nil
		}
	case a == nil:
		p.ask = &modelAsk{payload: p.live.collect(nil, p.origin), beats: p.beats, term: p.term, index: -1}
		p.beats = nil
	case a.answered:
		if p.applied >= a.index {
			m.acknowledge(a.beats)
			p.ask = nil
		}
	case m.r.IntN(8) == 0 || a.term != m.term:
		p.ask = m.lost(p)
	case a.reply == nil:
		reply, err := leader.live.renew(nil, p.origin, a.payload, m.now)
		if err != nil {
			m.t.Errorf("renew: %v", err)
		}
		a.reply = reply
	case a.index < 0:
		if settled {
			a.index = len(m.log)
		}
	default:
		if err := p.live.answered(a.reply); err != nil {
			m.t.Errorf("answered: %v", err)
		}
		a.answered = true
	}
}

// expire is the expirer of member i, also of one that does not lead any more.
func (m *model) expire(i int) {
	p := m.members[i]
	term := int(p.live.leads())
	due, _, _ := p.live.expired(m.now, &session.Stall{}, 0)
	for _, s := range due {
		m.decided[modelDecision{s.ID, s.Owner, i}] = true
		txn := znode.Txn{Op: &znode.CloseSession{Session: s.ID, Expired: true, Owner: s.Owner}}
		m.pending = append(m.pending, modelProposal{txn: txn, term: term})
	}
}

// told checks that no connection was told without reason that its session is over.
func (m *model) told() {
	for i, p := range m.members {
		for bind, link := range p.links {
			why := link.c.mu.closing
			if why == nil {
				continue
			}
			delete(p.links, bind)
			_, over := m.closed[link.id]
			if why.code == closeSessionOver && !over && !m.decides(link, i) {
				m.t.Errorf("connection %+v was told that session %v is over, which nobody decided", link.owns, link.id)
			}
		}
	}
}

// decides reports whether somebody decided to expire link's session: not the link's own
// member i alone under a lead that it knows to be over.
func (m *model) decides(link *modelLink, i int) bool {
	for by := range m.members {
		stands, made := m.decided[modelDecision{link.id, link.owns, by}]
		if made && (stands || by != i) {
			return true
		}
	}
	return false
}

func (m *model) step() {
	i := m.r.IntN(modelMembers)
	switch p := m.r.IntN(1000); {
	case p < 1:
		m.restart(i)
	case p < 4:
		m.elect(i)
	case p < 24:
		m.connect(i)
	case p < 120:
		m.now += m.r.Int64N(modelTimeout / 8)
	case p < 250:
		m.expire(i)
	case p < 350:
		m.learn(i)
	case p < 400:
		m.commit()
	case p < 500:
		m.apply(i)
	case p < 600:
		m.beat(i)
	default:
		m.confirm(i)
	}
	m.told()
}

// Goal: promise P6 wherever the client is and whoever leads: no session expires before its
// timeout has passed since a heartbeat that was acknowledged, and no client is told that its
// session is over unless its expiry was decided. Method: random runs of the model.
func TestPromise6AcrossMembers(t *testing.T) {
	t.Parallel()
	seeds, first := uint64(500), uint64(1)
	if text := os.Getenv("TENURE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, seeds = n, 1
	}
	total := map[string]int{}
	for seed := first; seed < first+seeds; seed++ {
		m := newModel(t, seed)
		for step := 0; step < 4000 && !t.Failed(); step++ {
			m.step()
		}
		if t.Failed() {
			t.Fatalf("replay: TENURE_SEED=%d go test ./server -run '^%s$'", seed, t.Name())
		}
		for what, n := range m.counts {
			total[what] += n
		}
	}
	t.Log(fmt.Sprint(total))
	for _, what := range []string{"acknowledged", "expiries", "undone expiries", "lost", "elections"} {
		if seeds > 1 && total[what] < 100 {
			t.Errorf("only %d %s in all: the model is no use", total[what], what)
		}
	}
}
