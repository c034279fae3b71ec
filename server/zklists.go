package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
)

// zkListMax bounds what one answer to an operator lists of anything, so that a large
// server is not held up by being looked at: watches and sessions are listed under the
// locks that serving them needs.
const zkListMax = 10_000

// connReport is one connection as cons shows it.
type connReport struct {
	connFigures
	remote    string
	interest  int // as of a selection key: 1 reads, 4 has something to write
	queued    int // requests not answered yet
	session   session.ID
	timeoutMs int32
	began     time.Time
}

func (c *conn) report() connReport {
	r := connReport{connFigures: c.stats.figures(), remote: c.remote, interest: 1, began: c.began}
	if l := c.live.Load(); l != nil {
		r.session, r.timeoutMs = l.ID, l.TimeoutMs
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.queued = c.mu.queue.len()
	if c.mu.out != nil {
		r.interest |= 4
	}
	return r
}

// zkConns lists open connections, the oldest first, and says how many there are.
func (s *Server) zkConns() (list []connReport, total int) {
	all := s.conns.all()
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	for _, c := range all[:min(len(all), zkListMax)] {
		list = append(list, c.report())
	}
	return list, len(all)
}

// resetConns begins the figures of every connection anew.
func (s *Server) resetConns() {
	for _, c := range s.conns.all() {
		c.stats.reset()
	}
}

// resetTraffic begins those of the server anew.
func (s *Server) resetTraffic() { s.traffic.reset(s.metrics.answered()) }

// zkLastOps are ZooKeeper's short names of operations, as in cons.
var zkLastOps = map[wire.Op]string{
	0: "SESS", wire.OpPing: "PING", wire.OpCloseSession: "CLOS", wire.OpCheck: "CHEC",
	wire.OpCreate: "CREA", wire.OpCreate2: "CREA", wire.OpCreateContainer: "CREA", wire.OpCreateTTL: "CREA",
	wire.OpDelete: "DELE", wire.OpDeleteContainer: "DELE", wire.OpExists: "EXIS",
	wire.OpGetData: "GETD", wire.OpSetData: "SETD", wire.OpGetACL: "GETA", wire.OpSetACL: "SETA",
	wire.OpGetChildren: "GETC", wire.OpGetChildren2: "GETC", wire.OpGetAllChildrenNumber: "GETACN",
	wire.OpGetEphemerals: "GETE", wire.OpSync: "SYNC", wire.OpMulti: "MULT", wire.OpMultiRead: "MLTR",
	wire.OpSetWatches: "SETW", wire.OpSetWatches2: "STW2", wire.OpAddWatch: "ADDW",
	wire.OpCheckWatches: "CHKW", wire.OpRemoveWatches: "REMW", wire.OpWhoAmI: "HOMI", wire.OpReconfig: "RECO",
	wire.OpAuth: "AUTH", wire.OpSASL: "SASL",
	// Operations that ZooKeeper does not have.
	wire.OpWith: "WITH", wire.OpRewatch: "REWA", wire.OpRenew: "RENE", wire.OpList: "LIST",
	wire.OpSessions: "SESL", wire.OpStatus: "STAT", wire.OpKillSession: "KILL",
	wire.OpMembers: "MEMB", wire.OpChangeMembers: "CHGM", wire.OpTransferLead: "LEAD",
}

// lastOpName is the short name of the operation that was answered last.
func (f *connFigures) lastOpName() string {
	if f.answered == 0 {
		return "NA"
	}
	return cmp.Or(zkLastOps[f.lastOp], "NA")
}

// zkSession is one open session as dump shows it.
type zkSession struct {
	id         session.ID
	expires    time.Time // if nothing is heard of it before
	remote     string    // of its connection, "" without one
	ephemerals []string
}

// zkDump is what dump shows.
type zkDump struct {
	sessions []zkSession // those that expire first first
	total    int         // how many there are
	cut      bool        // not all ephemerals are listed
}

func (s *Server) zkSessions() (d zkDump, err error) {
	now, wall := s.now(), time.Now()
	live, total := s.sessions.list(zkListMax)
	d.total = total
	room := zkListMax
	for _, l := range live {
		one := zkSession{id: l.ID, expires: wall.Add(time.Duration(l.deadline - now))}
		if c := l.conn.Load(); c != nil {
			one.remote = c.remote
		}
		if d.cut = d.cut || room == 0; !d.cut {
			if one.ephemerals, err = s.store.Ephemerals(l.ID, "", room); err != nil {
				s.fail(err)
				return zkDump{}, err
			}
			room -= len(one.ephemerals)
		}
		d.sessions = append(d.sessions, one)
	}
	d.cut = d.cut || room == 0
	slices.SortFunc(d.sessions, func(a, b zkSession) int {
		return cmp.Or(a.expires.Compare(b.expires), cmp.Compare(a.id, b.id))
	})
	return d, nil
}

// dueSession is a session with its deadline.
type dueSession struct {
	*liveSession
	deadline int64
}

// list returns up to limit open sessions, in no order, and how many there are.
func (l *liveSessions) list(limit int) (some []dueSession, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, one := range l.mu.open {
		if len(some) == limit {
			break
		}
		if deadline, ok := l.mu.tracker.Deadline(id); ok {
			some = append(some, dueSession{one, deadline})
		}
	}
	return some, len(l.mu.open)
}

// zkWatch says that a session watches a path, in one mode or several.
type zkWatch struct {
	path    string
	session session.ID
}

// zkWatches lists who watches what, and whether it left any out.
func (s *Server) zkWatches() (list []zkWatch, more bool) {
	list, more = s.watches.list(zkListMax)
	slices.SortFunc(list, func(a, b zkWatch) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.session, b.session))
	})
	return list, more
}

// list returns up to limit pairs of path and session, and whether there are more.
func (w *watches) list(limit int) (list []zkWatch, more bool) {
	w.Lock()
	defer w.Unlock()
	for path := range w.registry.Paths() {
		for who := range w.registry.WatchersOf(path) {
			if len(list) == limit {
				return list, true
			}
			if id := w.conns[who].sessionID(); id != 0 {
				list = append(list, zkWatch{path, id})
			}
		}
	}
	return list, false
}

// zkWatchCounts are the figures of wchs.
type zkWatchCounts struct{ conns, paths, watches int }

func (w *watches) counts() zkWatchCounts {
	w.Lock()
	defer w.Unlock()
	return zkWatchCounts{w.registry.Watchers(), w.registry.WatchedPaths(), w.registry.Count()}
}
