package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// reconfigPoll is how often reconfig looks again for what it waits for.
const reconfigPoll = 20 * time.Millisecond

// refusedReconfig is an error with the code that ZooKeeper has for it.
type refusedReconfig struct {
	code   znode.Error
	detail string
}

func (e *refusedReconfig) Error() string { return e.detail }

// reconfig carries out ZooKeeper's reconfig: who joins is added as a learner and, if it is
// to be a participant, gets its vote when it has caught up; all votes, departures and new
// addresses then take effect together. Its answer is /zookeeper/config with all that.
func (s *Server) reconfig(ctx context.Context, k *call) *wire.Reply {
	reply := &wire.Reply{Xid: k.req.Xid, Op: k.req.Op}
	body, err := s.tryReconfig(ctx, k.req.Body.(*wire.Reconfig), k.ids)
	if err != nil {
		reply.Err, reply.Detail = memberError(err)
		if refused, ok := err.(*refusedReconfig); ok {
			reply.Err = refused.code
		}
		s.log.Warn("reconfig was refused", "remote", k.c.remote, "err", err)
		return reply
	}
	reply.Body = body
	return reply
}

func (s *Server) tryReconfig(ctx context.Context, b *wire.Reconfig, ids []znode.Identity) (*wire.DataReply, error) {
	_, version, n, err := s.configNode()
	switch {
	case err != nil:
		return nil, err
	case !znode.AccessConfig.Allowed(n.ACL, ids):
		return nil, &refusedReconfig{znode.NoAuth, "reconfig needs WRITE on " + znode.ConfigPath}
	case b.ConfigID != -1 && b.ConfigID != version:
		return nil, &refusedReconfig{znode.BadVersion, fmt.Sprintf("the configuration has version %x, not %x", version, b.ConfigID)}
	}
	m, err := s.rep.Members(ctx)
	switch {
	case err != nil:
		return nil, err
	case m.Changing:
		return nil, replica.ErrChanging
	}
	want, err := reconfigured(configOf(&m, nil), b)
	if err != nil {
		return nil, &refusedReconfig{znode.BadArguments, err.Error()}
	}
	s.log.Info("reconfig is asked for", "joining", b.Joining, "leaving", b.Leaving, "new_members", b.NewMembers)
	if err := s.carryOutReconfig(ctx, &m, want); err != nil {
		return nil, err
	}
	return s.configSays(ctx, want)
}

// reconfigured is the configuration after a reconfig.
func reconfigured(was zkConfig, b *wire.Reconfig) (zkConfig, error) {
	split := func(text string) []string {
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' })
	}
	want := slices.Clone(was)
	put := func(lines []string) error {
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "version=") {
				continue
			}
			s, err := parseZKServer(line)
			if err != nil {
				return err
			}
			s.client = ""
			want = append(slices.DeleteFunc(want, func(e zkServer) bool { return e.id == s.id }), s)
		}
		return nil
	}
	if b.NewMembers != "" {
		if b.Joining != "" || b.Leaving != "" {
			return nil, rule("new members and joining or leaving ones exclude each other")
		}
		want = nil
		if err := put(split(b.NewMembers)); err != nil {
			return nil, err
		}
	}
	if err := put(split(b.Joining)); err != nil {
		return nil, err
	}
	for _, text := range split(b.Leaving) {
		id, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(text), "server."), 10, 64)
		if err != nil {
			return nil, rule("leaving %.100q: want a list of ids", b.Leaving)
		}
		want = slices.DeleteFunc(want, func(e zkServer) bool { return e.id == id })
	}
	if !slices.ContainsFunc(want, func(e zkServer) bool { return !e.observer }) {
		return nil, rule("no participant would be left")
	}
	slices.SortFunc(want, func(a, b zkServer) int { return int(a.id) - int(b.id) })
	return want, nil
}

// carryOutReconfig makes the members what want says.
func (s *Server) carryOutReconfig(ctx context.Context, m *replica.Members, want zkConfig) error {
	is := map[uint64]*replica.Member{}
	for i := range m.List {
		is[m.List[i].ID] = &m.List[i]
	}
	var add, rest []replica.Step
	for _, e := range want {
		was := is[e.id]
		delete(is, e.id)
		if was == nil {
			add = append(add, replica.Step{Kind: replica.AddLearner, ID: e.id, Address: e.peer})
			was = &replica.Member{ID: e.id, Address: e.peer}
		}
		switch {
		case was.Voter == e.observer && e.observer:
			rest = append(rest, replica.Step{Kind: replica.Demote, ID: e.id})
		case was.Voter == e.observer:
			rest = append(rest, replica.Step{Kind: replica.Promote, ID: e.id})
		}
		if was.Address != e.peer {
			if was.Voter == e.observer {
				return &refusedReconfig{znode.BadArguments, fmt.Sprintf("member %d: address and role change one after the other", e.id)}
			}
			rest = append(rest, replica.Step{Kind: replica.SetAddress, ID: e.id, Address: e.peer})
		}
	}
	for _, id := range sortedKeys(is) {
		rest = append(rest, replica.Step{Kind: replica.Remove, ID: id})
	}
	if len(add) > 0 {
		if _, err := s.rep.Change(ctx, replica.Change{Steps: add}); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return s.changeCaughtUp(ctx, rest)
}

// changeCaughtUp changes the members, and waits for those who are to get a vote to catch up:
// half of the time, since they may not have been started.
func (s *Server) changeCaughtUp(ctx context.Context, steps []replica.Step) error {
	patience := time.NewTimer(membersPatience / 2)
	defer patience.Stop()
	poll := time.NewTicker(reconfigPoll)
	defer poll.Stop()
	for {
		_, err := s.rep.Change(ctx, replica.Change{Steps: steps})
		if !errors.Is(err, replica.ErrBehind) {
			return err
		}
		select {
		case <-poll.C:
		case <-patience.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// configSays waits until /zookeeper/config here says want, and returns it.
func (s *Server) configSays(ctx context.Context, want zkConfig) (*wire.DataReply, error) {
	poll := time.NewTicker(reconfigPoll)
	defer poll.Stop()
	for {
		is, _, _, err := s.configNode()
		if err != nil {
			return nil, err
		}
		if is.withoutClients() == want.withoutClients() {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("the members have changed, but %s does not say so yet: %w", znode.ConfigPath, ctx.Err())
		}
	}
	s.state.RLock()
	defer s.state.RUnlock()
	n, kids, err := s.store.Node(znode.ConfigPath)
	if err != nil {
		s.fail(err)
		return nil, err
	}
	return &wire.DataReply{Data: n.Data, Stat: znode.StatOf(n, kids)}, nil
}
