package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/znode"
)

// How often the leader looks whether /zookeeper/config says what is so, and asks the members
// where their clients connect.
const (
	configLook = 250 * time.Millisecond
	configAsk  = 5 * time.Second
)

// zkConfig is what /zookeeper/config says, without its version.
type zkConfig []zkServer

// zkServer is one server of it, as ZooKeeper writes them:
// server.1=HOST:PORT:PORT:participant;HOST:PORT
type zkServer struct {
	id       uint64
	peer     string // where it listens for the others: HOST:PORT
	observer bool
	client   string // where it listens for ZooKeeper's clients; "" if unknown, or on no network
}

// text is the znode's data. The second port is where ZooKeeper holds elections, for which
// Tenure has no port of its own.
func (c zkConfig) text(version int64) string {
	var b strings.Builder
	for _, s := range c {
		_, port, _ := net.SplitHostPort(s.peer)
		role := "participant"
		if s.observer {
			role = "observer"
		}
		fmt.Fprintf(&b, "server.%d=%s:%s:%s", s.id, s.peer, port, role)
		if s.client != "" {
			b.WriteString(";" + s.client)
		}
		b.WriteByte('\n')
	}
	return b.String() + "version=" + strconv.FormatInt(version, 16)
}

// parseZKConfig reads the znode's data; version -1 if it has none.
func parseZKConfig(text string) (c zkConfig, version int64) {
	version = -1
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if hex, ok := strings.CutPrefix(line, "version="); ok {
			if v, err := strconv.ParseInt(hex, 16, 64); err == nil {
				version = v
			}
		} else if s, err := parseZKServer(line); err == nil {
			c = append(c, s)
		}
	}
	return c, version
}

// parseZKServer reads server.ID=HOST:PORT[:PORT][:ROLE][;[HOST:]PORT].
func parseZKServer(line string) (zkServer, error) {
	name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
	wrong := func(what string) (zkServer, error) {
		return zkServer{}, rule("server %.100q %s: want server.ID=HOST:PORT:PORT:participant;PORT, or observer", line, what)
	}
	number, ok := strings.CutPrefix(strings.TrimSpace(name), "server.")
	id, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || id == 0 || id > replica.MaxMemberID {
		return wrong(fmt.Sprintf("has no id from 1 to %d", replica.MaxMemberID))
	}
	s := zkServer{id: id}
	value, s.client, _ = strings.Cut(strings.TrimSpace(value), ";")
	host, rest, found := "", value, false
	if strings.HasPrefix(value, "[") {
		host, rest, found = strings.Cut(value, "]:")
		host = strings.TrimPrefix(host, "[")
	} else {
		host, rest, found = strings.Cut(value, ":")
	}
	parts := strings.Split(rest, ":")
	if !found || host == "" {
		return wrong("has no port")
	}
	switch role := strings.ToLower(parts[len(parts)-1]); role {
	case "observer", "participant":
		s.observer = role == "observer"
		parts = parts[:len(parts)-1]
	}
	if len(parts) == 0 || len(parts) > 2 {
		return wrong("has another number of ports")
	}
	if s.peer, err = canonicalAddress(net.JoinHostPort(host, parts[0])); err != nil {
		return wrong("has the address " + net.JoinHostPort(host, parts[0]) + ", which " + err.Error())
	}
	return s, nil
}

// withoutClients is c without where clients connect, which is each member's own affair.
func (c zkConfig) withoutClients() string {
	bare := make(zkConfig, len(c))
	for i, s := range c {
		s.client = ""
		bare[i] = s
	}
	return bare.text(0)
}

// configOf is what /zookeeper/config is to say of members, clients being the addresses for
// clients by id.
func configOf(m *replica.Members, clients map[uint64]string) zkConfig {
	var c zkConfig
	for i := range m.List {
		e := &m.List[i]
		c = append(c, zkServer{e.ID, e.Address, !e.Voter, clients[e.ID]})
	}
	return c
}

// clientAddress is a member's address for ZooKeeper's clients as others may use it: "" of one
// that only its own machine reaches while the members are on several.
func clientAddress(listen, peer string) string {
	host, _, err := net.SplitHostPort(listen)
	peerHost, _, errPeer := net.SplitHostPort(peer)
	if err != nil || errPeer != nil || isLoopback(host) && !isLoopback(peerHost) {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() { // as ZooKeeper writes it
		_, port, _ := net.SplitHostPort(listen)
		return "0.0.0.0:" + port
	}
	return listen
}

// keepConfig lets /zookeeper/config say who the members are, while this member leads.
func (s *Server) keepConfig(ctx context.Context) {
	look := time.NewTicker(configLook)
	defer look.Stop()
	var (
		clients map[uint64]string
		term    uint64
		index   uint64
		asked   time.Time
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		leads := s.rep.Leads()
		if leads == 0 {
			continue
		}
		m := s.rep.Configuration()
		if leads != term || m.Index != index || time.Since(asked) > configAsk {
			clients = s.clientAddresses()
			term, index, asked = leads, m.Index, time.Now()
		}
		s.writeConfig(leads, &m, clients)
	}
}

// clientAddresses asks all members where their clients connect; those that do not answer
// keep what they had.
func (s *Server) clientAddresses() map[uint64]string {
	clients := map[uint64]string{}
	if was, _, _, err := s.configNode(); err == nil {
		for _, e := range was {
			clients[e.id] = e.client
		}
	}
	for _, m := range s.ensembleStatus().Members {
		if m.Role != "" {
			clients[m.ID] = clientAddress(m.ZKListen, m.Address)
		}
	}
	return clients
}

// writeConfig proposes new data for /zookeeper/config if it says something else. Its version
// is the zxid of the last change before, so that it grows and is never used twice.
func (s *Server) writeConfig(term uint64, m *replica.Members, clients map[uint64]string) {
	was, _, _, err := s.configNode()
	want := configOf(m, clients)
	if err != nil || m.Changing || was.text(0) == want.text(0) {
		return
	}
	op := &znode.SetData{Path: znode.ConfigPath, Data: []byte(want.text(s.store.LastZxid())), Version: -1}
	if err := s.proposeOwn(term, op); err != nil {
		s.log.Warn("the update of /zookeeper/config is put off", "err", err)
	}
}

// configNode is /zookeeper/config as this member has applied it.
func (s *Server) configNode() (zkConfig, int64, *znode.Node, error) {
	s.state.RLock()
	n, _, err := s.store.Node(znode.ConfigPath)
	s.state.RUnlock()
	if err != nil {
		s.fail(err)
		return nil, -1, nil, err
	}
	c, version := parseZKConfig(string(n.Data))
	return c, version, n, nil
}
