package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: the text of /zookeeper/config is read as it was written, and server lines as
// ZooKeeper reads them. Method: a text of the form that tests/zk_reconfig_test.go sees on a
// ZooKeeper; lines in all forms that its documentation has; lines that are none.
func TestZKConfigText(t *testing.T) {
	const shown = "server.1=127.0.0.1:2888:2888:participant;127.0.0.1:2181\nserver.2=127.0.0.1:2889:2889:observer;0.0.0.0:2182\nserver.3=[::1]:2890:2890:participant\nversion=1000000ff"
	c, version := parseZKConfig(shown)
	if c.text(version) != shown || version != 0x1000000ff || len(c) != 3 || !c[1].observer || c[2].peer != "[::1]:2890" {
		t.Errorf("%+v, version %x:\n%s", c, version, c.text(version))
	}
	if c, version := parseZKConfig(""); len(c) != 0 || version != -1 {
		t.Errorf("nothing: %+v, %d", c, version)
	}
	for line, want := range map[string]zkServer{
		"server.5=h:1:2;3":                        {5, "h:1", false, "3"},
		" server.5 = H:1:2:participant;a:3 ":      {5, "h:1", false, "a:3"},
		"server.5=h:1":                            {5, "h:1", false, ""},
		"server.255=10.0.0.1:1:2:OBSERVER;[::]:3": {255, "10.0.0.1:1", true, "[::]:3"},
	} {
		if got, err := parseZKServer(line); err != nil || got != want {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		"":                      "has no id",
		"server.0=h:1:2":        "has no id",
		"server.256=h:1:2":      "has no id",
		"server.x=h:1:2":        "has no id",
		"server.1=h":            "has no port",
		"server.1=:1:2":         "has no port",
		"server.1=h:1:2:3:4":    "another number of ports",
		"server.1=h:observer":   "another number of ports",
		"server.1=h:70000:1":    "port from 1 to 65535",
		"server.1=0.0.0.0:1:2":  "must be one that others can dial",
		"server.1=h:1:2:leader": "another number of ports",
		"group.1=1:2":           "has no id",
	} {
		if _, err := parseZKServer(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	for _, row := range [][3]string{
		{"0.0.0.0:2181", "zoo1:2182", "0.0.0.0:2181"}, {"[::]:2181", "zoo1:2182", "0.0.0.0:2181"}, {"127.0.0.1:2181", "zoo1:2182", ""},
		{"127.0.0.1:2181", "127.0.0.1:2182", "127.0.0.1:2181"}, {"10.0.0.1:2181", "zoo1:2182", "10.0.0.1:2181"}, {"", "zoo1:2182", ""},
	} {
		if got := clientAddress(row[0], row[1]); got != row[2] {
			t.Errorf("clients of %s reach %s at %q, want %q", row[1], row[0], got, row[2])
		}
	}
}

// Goal: what a reconfig makes of a configuration. Method: rows of both forms, and wrong ones.
func TestReconfigured(t *testing.T) {
	was, _ := parseZKConfig("server.1=a:1:1:participant\nserver.2=b:1:1:participant\nserver.3=c:1:1:participant\n")
	for _, row := range []struct {
		b    wire.Reconfig
		want string // ids with p or o, or the error
	}{
		{wire.Reconfig{Joining: "server.4=d:1:2;3,server.5=e:1:2:observer;3"}, "1p 2p 3p 4p 5o"},
		{wire.Reconfig{Joining: "server.2=b:1:2:observer;3", Leaving: "3"}, "1p 2o"},
		{wire.Reconfig{Leaving: "9"}, "1p 2p 3p"},
		{wire.Reconfig{Leaving: "server.1, 2"}, "3p"},
		{wire.Reconfig{NewMembers: "server.2=b:1:1:participant\nserver.4=d:1:2\nversion=5"}, "2p 4p"},
		{wire.Reconfig{Leaving: "1,2,3"}, "no participant would be left"},
		{wire.Reconfig{NewMembers: "server.2=b:1:1:observer"}, "no participant would be left"},
		{wire.Reconfig{NewMembers: "server.2=b:1:1", Leaving: "1"}, "exclude each other"},
		{wire.Reconfig{Leaving: "x"}, "want a list of ids"},
		{wire.Reconfig{Joining: "x"}, "has no id"},
		{wire.Reconfig{NewMembers: "x"}, "has no id"},
	} {
		var got []string
		c, err := reconfigured(was, &row.b)
		for _, e := range c {
			got = append(got, fmt.Sprint(e.id)+map[bool]string{true: "o", false: "p"}[e.observer])
		}
		if text := strings.Join(got, " "); err == nil && text != row.want || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %s, %v; want %s", row.b, text, err, row.want)
		}
	}
}

// zkConfigOf reads /zookeeper/config with a watch.
func zkConfigOf(t *testing.T, r *rawClient) (zkConfig, int64, string) {
	t.Helper()
	reply := r.call(wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: znode.ConfigPath, Watch: true}})
	if reply.Err != znode.OK {
		t.Fatal(reply.Err)
	}
	text := string(reply.Body.(*wire.DataReply).Data)
	c, version := parseZKConfig(text)
	return c, version, text
}

func (r *rawClient) reconfig(b wire.Reconfig) (*wire.DataReply, znode.Error) {
	r.t.Helper()
	reply := r.call(wire.Request{Op: wire.OpReconfig, Body: &b})
	data, _ := reply.Body.(*wire.DataReply)
	return data, reply.Err
}

// Goal: through ZooKeeper's door /zookeeper/config says who the members are and tells its
// watchers of changes, and reconfig makes them, for whom it is allowed, and answers with the
// new text. Method: three members with reconfig-enabled.
func TestReconfig(t *testing.T) {
	t.Parallel()
	configs := memberConfigs(t, 3)
	for i := range configs {
		configs[i].ReconfigEnabled, configs[i].SuperDigest = true, Secret(znode.DigestID("super", "top"))
	}
	list := startMembers(t, configs)
	leader := leaderOf(list)
	others := slices.DeleteFunc(slices.Clone(list), func(s *Server) bool { return s == leader })
	keeps, moves := others[0], uint64(others[1].cfg.MemberID)
	r := openAs(t, keeps, zooKeeper, 10*time.Second)
	var version int64
	waitFor(t, "the configuration is there", ensembleDeadline, func() bool {
		c, v, text := zkConfigOf(t, r)
		version = v
		return len(c) == 3 && strings.Contains(text, fmt.Sprintf("server.1=%s:", list[0].cfg.PeerListen)) &&
			c[2].client == list[2].ZKAddr().String()
	})
	r.told()
	line := func(role string) string {
		host, port, _ := strings.Cut(others[1].cfg.PeerListen, ":")
		return fmt.Sprintf("server.%d=%s:%s:%s:%s;0.0.0.0:1", moves, host, port, port, role)
	}
	if _, e := r.reconfig(wire.Reconfig{Leaving: fmt.Sprint(moves), ConfigID: -1}); e != znode.NoAuth {
		t.Errorf("without permission: %v", e)
	}
	if e := r.auth("digest", "super:top"); e != znode.OK {
		t.Fatal(e)
	}
	if _, e := r.reconfig(wire.Reconfig{Leaving: fmt.Sprint(moves), ConfigID: version + 1}); e != znode.BadVersion {
		t.Errorf("another version: %v", e)
	}
	if _, e := r.reconfig(wire.Reconfig{Joining: "nonsense", ConfigID: -1}); e != znode.BadArguments {
		t.Errorf("nonsense: %v", e)
	}
	if _, e := r.reconfig(wire.Reconfig{Joining: line("observer"), ConfigID: version}); e != znode.OK {
		t.Fatalf("to an observer: %v", e)
	}
	c, after, text := zkConfigOf(t, r)
	if after <= version || !slices.ContainsFunc(c, func(e zkServer) bool { return e.id == moves && e.observer }) {
		t.Errorf("version %x after %x:\n%s", after, version, text)
	}
	r.wantTold("whoever watches", "changed "+znode.ConfigPath)
	if _, e := r.reconfig(wire.Reconfig{Joining: line("participant"), ConfigID: -1}); e != znode.OK {
		t.Fatalf("back to a participant: %v", e)
	}
	data, e := r.reconfig(wire.Reconfig{Leaving: fmt.Sprint(moves), ConfigID: -1})
	if e != znode.OK || strings.Contains(string(data.Data), fmt.Sprintf("server.%d=", moves)) || data.Stat.Mzxid == 0 {
		t.Fatalf("leaving: %v %+v", e, data)
	}
	if _, e := r.reconfig(wire.Reconfig{Joining: line("participant"), ConfigID: -1}); e != znode.BadArguments {
		t.Errorf("an id that was removed: %v", e)
	}
	if m := keeps.rep.Configuration(); len(m.List) != 2 || !slices.Equal(m.Removed, []uint64{moves}) {
		t.Errorf("members %+v", m)
	}
	nobody := freeAddresses(t, 1)[0]
	host, port, _ := strings.Cut(nobody, ":")
	joining := fmt.Sprintf("server.9=%s:%s:%s:participant;0.0.0.0:1", host, port, port)
	if _, e := r.reconfig(wire.Reconfig{Joining: joining, ConfigID: -1}); e != znode.NewConfigNoQuorum {
		t.Errorf("who does not answer gets a vote: %v", e)
	}
}

// Goal: how a change that is refused looks through ZooKeeper's door. Method: each error.
func TestMemberErrors(t *testing.T) {
	for err, want := range map[error]znode.Error{
		replica.ErrMember: znode.BadArguments, replica.ErrChanging: znode.ReconfigInProgress, replica.ErrNoQuorum: znode.NewConfigNoQuorum,
		replica.ErrBehind: znode.NewConfigNoQuorum, replica.ErrNoSuccessor: znode.NewConfigNoQuorum, replica.ErrStopped: znode.OperationTimeout,
	} {
		if code, text := memberError(fmt.Errorf("%w: why", err)); code != want || !strings.HasSuffix(text, ": why") || strings.Contains(text, "replica") {
			t.Errorf("%v: %v %q", err, code, text)
		}
	}
}
