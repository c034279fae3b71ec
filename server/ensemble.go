package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/replica/peer"
)

// ensemble is this member among others. The zero value is a member that is alone.
type ensemble struct {
	network *peer.Transport // nil if there can be no others
	// served is closed when clients are served for the first time.
	served     chan struct{}
	digests    digests
	syncTimes  syncTimes
	lastStatus lastStatus
	// memberFigures are nil while this member does not lead.
	memberFigures atomic.Pointer[memberFigures]
}

// connect makes the network between the members, once the log has told who this one is.
func (s *Server) connect(cluster, instance uint64) (replica.Network, error) {
	c := peer.Config{
		Cluster: cluster, ID: uint64(s.cfg.MemberID), Instance: instance, Version: Build().Version,
		Advertise: s.advertise(), Listener: s.peers, Log: s.log,
		Known: func(member, instance uint64) error { return s.rep.Known(member, instance) },
	}
	if t := s.cfg.PeerTLS; t.CertFile != "" {
		c.TLS = &peer.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile}
	}
	network, err := peer.Open(c)
	if err != nil {
		return nil, fmt.Errorf("peer-listen %s: %w", s.cfg.PeerListen, err)
	}
	s.network = network
	return network, nil
}

// founders are the members of a new log; for a member that joins those to ask.
func (s *Server) founders() map[uint64]string {
	founders := map[uint64]string{}
	for _, m := range s.cfg.Members() {
		founders[m.ID] = m.Address
	}
	if len(founders) == 0 && !s.cfg.Join {
		founders[uint64(s.cfg.MemberID)] = s.advertise()
	}
	return founders
}

// advertise is where the others reach this member, "" if there can be none.
func (s *Server) advertise() string {
	address := s.cfg.Advertise()
	if s.peers != nil && address == s.cfg.PeerListen { // the port may be one that was picked
		address = s.peers.Addr().String()
	}
	return address
}

// compareWithLog says where the settings name another ensemble than the one that the log
// belongs to, which is the one that counts.
func (s *Server) compareWithLog() {
	told := s.cfg.Cluster()
	if is := s.rep.Cluster(); told != 0 && told != is {
		s.log.Warn("cluster and initial-members count only when a log begins: the ensemble and its members are those of the log; change them with `tenure member`",
			"cluster", fmt.Sprintf("%016x", is), "settings_name", fmt.Sprintf("%016x", told))
	}
	if n := len(s.cfg.InitialMembers); n > 0 && n%2 == 0 && !s.cfg.Join {
		s.log.Info("an even number of members: one less would tolerate as many failures", "members", n)
	}
}

// Serving is closed once clients are served: this member has applied everything that was
// acknowledged when it asked a leader. An ensemble has none before a majority is up.
func (s *Server) Serving() <-chan struct{} { return s.served }

// errNoLeader: nobody can be served.
var errNoLeader = errors.New("no leader")

// followLeader lets clients in while a leader answers, and sends them away when none has
// for three election timeouts: within that time they notice nothing of a fail-over.
func (s *Server) followLeader(ctx context.Context) {
	look := time.NewTicker(s.cfg.ElectionTimeout / 2)
	defer look.Stop()
	for {
		err := s.barrier(ctx)
		if ctx.Err() != nil {
			return
		}
		s.letIn(err)
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// letIn lets clients in, or sends them away if it was not possible to ask a leader.
func (s *Server) letIn(err error) {
	switch served := s.led.Swap(err == nil); {
	case served && err != nil:
		s.log.Warn("clients are sent away", "err", err)
		s.conns.sendAway(closeReason{closeTryAgain, s.admits().Error()})
	case !served && err == nil:
		s.beginServing()
	}
}

// beginServing is called when clients are let in, also after a time without a leader.
func (s *Server) beginServing() {
	select {
	case <-s.served:
		s.log.Info("clients are let in again")
	default:
		s.learnPresence.Store(true)
		close(s.served)
	}
}

// barrier waits until everything that was acknowledged when it was called is applied here.
func (s *Server) barrier(ctx context.Context) error {
	done := make(chan error, 1)
	s.rep.Barrier(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-s.failed:
		return s.healthy()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admits returns nil, or why nobody is let in now.
func (s *Server) admits() error {
	switch err := s.healthy(); {
	case err != nil:
		return err
	case s.led.Load():
		return nil
	case s.rep.Status().IsRemoved:
		return errRemoved
	}
	return errNoLeader
}

// resignPatience is how long a stop waits for another member to take the lead over.
const resignPatience = 2 * time.Second

// resign hands the lead over before this member stops, so that nobody has to wait for an
// election. Without anybody to take it the member stops all the same.
func (s *Server) resign(ctx context.Context) {
	if s.rep == nil || s.network == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resignPatience)
	defer cancel()
	if err := s.rep.Resign(ctx); err != nil {
		s.log.Warn("the lead is not handed over", "err", err)
	}
}
