package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// status answers OpStatus.
func (s *Server) status() *wire.StatusReply {
	f := s.figures()
	st := f.Replica
	r := &wire.StatusReply{}
	add := func(name string, value any) {
		r.Figures = append(r.Figures, wire.Figure{Name: name, Value: fmt.Sprint(value)})
	}
	add("version", Build().Version)
	add("member", st.ID)
	add("role", roleOf(&st))
	add("leader", st.Leader)
	add("term", st.Term)
	add("applied", st.Applied)
	add("committed", st.Committed)
	add("log first", st.First)
	add("log last", st.Last)
	add("zxid", s.store.LastZxid())
	add("digest", strconv.FormatUint(s.store.Digest(), 16))
	add("znodes", f.Counts.Znodes)
	add("data bytes", f.Counts.DataBytes)
	add("ephemerals", f.Counts.Ephemerals)
	add("sessions", f.Counts.Sessions)
	add("connections", f.Connections)
	add("watches", f.Watches)
	add("history from zxid", f.Counts.HistoryFirst)
	add("max message bytes", s.cfg.MaxMessageBytes)
	add("uptime ms", s.now()/1e6)
	add("growth refused", s.full())
	return r
}

// figures implements what metrics read once per scrape.
func (s *Server) figures() figures {
	held, count := s.outstanding.now()
	s.conns.Lock()
	connections := len(s.conns.open)
	s.conns.Unlock()
	return figures{
		Counts: s.store.Counts(), Replica: s.rep.Status(), Stats: s.rep.Stats(), Members: s.memberFigures.Load(), Peers: s.peerStatus(),
		Connections: int64(connections), Watches: int64(s.watches.count()),
		Outstanding: count, OutstandingBytes: held, OutboxBytes: s.outboxBytes.Load(),
		Disks: []diskFigures{diskOf("state", s.store.Metrics()), diskOf("log", s.rep.Metrics())},
	}
}

// diskOf picks what operators look at from Pebble's figures.
func diskOf(name string, m *pebble.Metrics) diskFigures {
	return diskFigures{
		Name: name, DiskBytes: int64(m.DiskSpaceUsage()), MemtableBytes: int64(m.MemTable.Size), CacheBytes: m.BlockCache.Size,
		Compactions: m.Compact.Count, Flushes: m.Flush.Count,
		CompactionDebtBytes: int64(m.Compact.EstimatedDebt), WALBytes: int64(m.WAL.Size),
		ReadAmplification: int64(m.ReadAmp()),
	}
}

// readSessions lists open sessions, a page at a time.
func (s *Server) readSessions(b *wire.Sessions) (any, znode.Error) {
	const sessionsPage = 1000
	limit := sessionsPage
	if b.Limit > 0 && int(b.Limit) < limit {
		limit = int(b.Limit)
	}
	list := s.store.Sessions(b.After, limit+1)
	r := &wire.SessionsReply{}
	if len(list) > limit {
		list, r.More = list[:limit], true
	}
	for i := range list {
		info := wire.SessionInfo{ID: list[i].ID, TimeoutMs: list[i].TimeoutMs, IdleMs: -1}
		if heard, ok := s.sessions.heard(list[i].ID); ok {
			info.IdleMs = (s.now() - heard) / 1e6
		}
		if l := s.sessions.get(list[i].ID); l != nil {
			if c := l.conn.Load(); c != nil {
				info.Remote = c.remote
				info.Watches = int32(s.watches.countOf(c))
			}
		}
		paths, err := s.store.Ephemerals(list[i].ID, "", 0)
		if err != nil {
			s.fail(err)
			return nil, znode.SystemError
		}
		info.Ephemerals = int32(len(paths))
		r.Sessions = append(r.Sessions, info)
	}
	return r, znode.OK
}

// healthy implements adminBackend.
func (s *Server) healthy() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// ready implements adminBackend.
func (s *Server) ready() error {
	if err := s.healthy(); err != nil {
		return err
	}
	if !s.serving.Load() {
		return errors.New("stopping")
	}
	switch st := s.rep.Status(); {
	case st.IsRemoved:
		return errRemoved
	case st.Leader == 0:
		return errNoLeader
	}
	return s.admits()
}

// writeSnapshot implements adminBackend.
func (s *Server) writeSnapshot(w io.Writer) (store.SnapshotInfo, error) {
	return s.store.WriteSnapshot(w)
}

// tlsState is what a TLS handshake found out, nil for a plain connection.
func tlsState(c net.Conn) *tls.ConnectionState {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	st := t.ConnectionState()
	return &st
}
