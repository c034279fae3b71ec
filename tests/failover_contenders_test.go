package tests

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/bench"
	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

const (
	failoverSessions = 10 // of each contender
	failoverTimeout  = 10 * time.Second
)

// newTenureContender starts Tenure. Its probes are its own clients.
func newTenureContender(t *testing.T, l *lan) *contender {
	e := newLANEnsemble(t, l)
	e.startAll()
	c := &contender{name: "tenure", e: e, leader: e.leader}
	mustCreate(t, e.connect(client.Options{}), "/probe")
	c.probe = func(int) failoverProbe {
		return &nativeProbe{o: client.Options{Endpoints: e.endpoints(""), Timeout: failoverTimeout}}
	}
	c.pinned = func(i int) failoverProbe {
		return &nativeProbe{o: client.Options{Endpoints: []string{e.endpoints("")[i]}, Timeout: failoverTimeout}}
	}
	c.sessions = func(t *testing.T) func() int {
		var clients []*client.Client
		for range failoverSessions {
			clients = append(clients, e.connect(client.Options{Timeout: failoverTimeout}))
		}
		overZooKeepersDoor := countExpired(t, e)
		return func() int {
			lost := overZooKeepersDoor()
			for _, c := range clients {
				lost += int(c.Stats().Expiries)
			}
			return lost
		}
	}
	return c
}

// nativeProbe is a client of the websocket door, which tries again by itself: no write of
// it may fail.
type nativeProbe struct {
	o client.Options
	c *client.Client
}

func (p *nativeProbe) write(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failoverMax)
	defer cancel()
	if p.c == nil {
		if p.c, err = client.Connect(ctx, p.o); err != nil {
			p.c = nil
			return err
		}
	}
	_, err = p.c.Set(ctx, "/probe", []byte("x"), -1)
	return err
}

func (p *nativeProbe) close() {
	if p.c != nil {
		p.c.Close()
	}
}

// countExpired opens sessions of ZooKeeper's protocol and counts those that end.
func countExpired(t *testing.T, e *ensemble) (lost func() int) {
	t.Helper()
	var expired atomic.Int64
	for range failoverSessions {
		c, events, err := zk.Connect(e.servers(), failoverTimeout, zk.WithLogInfo(false), zk.WithLogger(discardLog{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		go func() {
			for ev := range events {
				if ev.State == zk.StateExpired {
					expired.Add(1)
				}
			}
		}()
		if _, _, err := c.Get("/"); err != nil { // there is a session
			t.Fatal(err)
		}
	}
	return func() int { return int(expired.Load()) }
}

// newZooKeeperContender starts ZooKeeper 3.8 with its defaults. Each probe is pinned to a
// server and does nothing but to try again.
func newZooKeeperContender(t *testing.T, l *lan) *contender {
	if _, err := os.Stat("/usr/share/java/zookeeper.jar"); err != nil {
		t.Fatal(recipestest.ErrNoZooKeeper)
	}
	e := &ensemble{t: t}
	dirs := e.keep(3)
	e.endWithTest()
	var servers string
	for i := 1; i <= 3; i++ {
		servers += fmt.Sprintf("server.%d=%s:2888:3888;%s:2181\n", i, l.address(i), l.address(i))
	}
	for i, dir := range dirs {
		config := fmt.Sprintf("tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=%s\nadmin.enableServer=false\nmaxClientCnxns=0\n%s", dir, servers)
		var err error
		for name, text := range map[string]string{"zoo.cfg": config, "myid": fmt.Sprint(i + 1), "log4j.properties": "log4j.rootLogger=OFF\n"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		jars := "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-log4j12.jar:/usr/share/java/log4j-1.2.jar:/usr/share/java/servlet-api.jar"
		m := e.add(dir)
		m.zk = l.address(m.id) + ":2181"
		m.command = l.command(m.id, "java", "-Xmx512m", "-Dzookeeper.jmx.log4j.disable=true", "-cp", dir+":"+jars,
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg"))
	}
	for _, m := range e.members {
		m.spawn()
	}
	c := &contender{name: "zookeeper", e: e, probe: zkProbeOf(e)}
	c.leader = func() *ensembleMember { return zooKeeperLeader(e) }
	var z *zk.Conn
	e.eventually(failoverMax, "ZooKeeper serves", func() (err error) {
		if z != nil {
			z.Close()
		}
		if z, _, err = zk.Connect([]string{e.members[0].zk}, failoverTimeout, zk.WithLogInfo(false), zk.WithLogger(discardLog{})); err == nil {
			_, err = z.Create("/probe", nil, 0, zk.WorldACL(zk.PermAll))
		}
		return err
	})
	z.Close()
	c.sessions = func(t *testing.T) func() int { return countExpired(t, e) }
	return c
}

// zooKeeperLeader asks all servers what they are.
func zooKeeperLeader(e *ensemble) *ensembleMember {
	for _, m := range e.members {
		if m.stopped.Load() {
			continue
		}
		if answer, err := fourLetters(m.zk, "srvr"); err == nil && strings.Contains(answer, "Mode: leader") {
			return m
		}
	}
	return nil
}

// fourLetters sends a four-letter word.
func fourLetters(address, word string) (string, error) {
	c, err := net.DialTimeout("tcp", address, statusMax)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(statusMax))
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

// zkProbe is pinned to a server of ZooKeeper's protocol.
type zkProbe struct {
	address string
	c       bench.Conn
}

func zkProbeOf(e *ensemble) func(i int) failoverProbe {
	return func(i int) failoverProbe { return &zkProbe{address: e.members[i].zk} }
}

func (p *zkProbe) write(ctx context.Context) (err error) {
	if p.c == nil {
		dial, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if p.c, err = (&bench.ZooKeeper{Addrs: []string{p.address}}).Connect(dial, 1); err != nil {
			p.c = nil
			return err
		}
	}
	var code znode.Error
	if err = p.c.Set(ctx, "/probe", []byte("x")); err != nil && !errors.As(err, &code) {
		c := p.c
		go c.Close() // it may wait for an answer
		p.c = nil
	}
	return err
}

func (p *zkProbe) close() {
	if p.c != nil {
		p.c.Close()
	}
}

// newEtcdContender starts etcd, ETCD or that of PATH, with its defaults. Each probe is
// pinned to a member's HTTP port.
func newEtcdContender(t *testing.T, l *lan) *contender {
	etcd := os.Getenv("ETCD")
	if etcd == "" {
		etcd = "etcd"
	}
	if _, err := exec.LookPath(etcd); err != nil {
		t.Fatal(err)
	}
	e := &ensemble{t: t}
	dirs := e.keep(3)
	e.endWithTest()
	var founders []string
	for i := 1; i <= 3; i++ {
		founders = append(founders, fmt.Sprintf("%d=http://%s:2380", i, l.address(i)))
	}
	for i, dir := range dirs {
		m, host := e.add(dir), l.address(i+1)
		m.http = host + ":2379"
		m.command = l.command(m.id, etcd, "--name", fmt.Sprint(m.id), "--data-dir", m.dir, "--log-level", "error",
			"--listen-client-urls", "http://"+host+":2379", "--advertise-client-urls", "http://"+host+":2379",
			"--listen-peer-urls", "http://"+host+":2380", "--initial-advertise-peer-urls", "http://"+host+":2380",
			"--initial-cluster", strings.Join(founders, ","))
	}
	for _, m := range e.members {
		m.spawn()
	}
	c := &contender{name: "etcd", e: e, leader: func() *ensembleMember { return etcdLeader(e) },
		probe: func(i int) failoverProbe {
			return etcdProbe{e.members[i].http, &http.Client{Transport: &http.Transport{}}}
		}}
	e.eventually(failoverMax, "etcd serves", func() error { return probeOnce(c, 0) })
	c.sessions = func(t *testing.T) func() int { return countLeases(t, e) }
	return c
}

// etcdCall calls a method of etcd's gateway.
func etcdCall(ctx context.Context, c *http.Client, address, method string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := c.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	if err == nil && reply != nil {
		err = json.Unmarshal(text, reply)
	}
	return err
}

func etcdLeader(e *ensemble) *ensembleMember {
	for _, m := range e.members {
		if m.stopped.Load() {
			continue
		}
		var status struct {
			Header struct {
				Member string `json:"member_id"`
			}
			Leader string
		}
		ctx, cancel := context.WithTimeout(context.Background(), statusMax)
		err := etcdCall(ctx, statusClient, m.http, "maintenance/status", struct{}{}, &status)
		cancel()
		if err == nil && status.Leader == status.Header.Member {
			return m
		}
	}
	return nil
}

// etcdProbe is pinned to a member.
type etcdProbe struct {
	address string
	c       *http.Client
}

func (p etcdProbe) write(ctx context.Context) error {
	encoded := base64.StdEncoding.EncodeToString([]byte("probe"))
	return etcdCall(ctx, p.c, p.address, "kv/put", map[string]string{"key": encoded, "value": encoded}, nil)
}

func (p etcdProbe) close() { p.c.CloseIdleConnections() }

// countLeases takes leases, keeps them alive through whichever member answers, and counts
// those that are gone.
func countLeases(t *testing.T, e *ensemble) (lost func() int) {
	t.Helper()
	call := func(method string, request, reply any) (err error) {
		for _, m := range e.members {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err = etcdCall(ctx, statusClient, m.http, method, request, reply)
			cancel()
			if err == nil {
				return nil
			}
		}
		return err
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	var ids []string
	for range failoverSessions {
		var lease struct{ ID string }
		if err := call("lease/grant", map[string]int{"TTL": int(failoverTimeout.Seconds())}, &lease); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, lease.ID)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(failoverTimeout / 5):
					call("lease/keepalive", map[string]string{"ID": lease.ID}, nil)
				}
			}
		}()
	}
	return func() (gone int) {
		for _, id := range ids {
			var left struct{ TTL string }
			if err := call("lease/timetolive", map[string]string{"ID": id}, &left); err != nil || strings.HasPrefix(left.TTL, "-") {
				gone++
			}
		}
		return gone
	}
}
