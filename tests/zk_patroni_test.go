//go:build linux

package tests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

const (
	// patroniTTL is the timeout of a node's session, in seconds.
	patroniTTL = 12
	// patroniPatience is for what Patroni does in a few turns of its loop.
	patroniPatience = time.Minute
)

// patroniCluster is two nodes, each Patroni with a PostgreSQL, and their ZooKeeper.
type patroniCluster struct {
	t      *testing.T
	server zkServer
	zk     *zk.Conn
	nodes  map[string]*patroniNode
	db     *sql.DB // whichever of them is primary
}

type patroniNode struct {
	application
	db *sql.DB
}

// startPatroni starts the nodes a and b at once.
func startPatroni(t *testing.T) *patroniCluster {
	t.Helper()
	python := interpreter(t, "import patroni.dcs.zookeeper, psycopg2", []string{"/usr/bin/python3", "-c"})[0]
	programs := recipestest.PostgresPrograms(t)
	server := startZKServer(t)
	c := &patroniCluster{t: t, server: server, zk: server.connect(t), nodes: map[string]*patroniNode{}}
	ports := freePorts(t, 4)
	for i, name := range []string{"a", "b"} {
		dir, as := recipestest.PostgresDir(t)
		writeTemplate(t, dir, "patroni.yml", map[string]any{
			"Name": name, "ZooKeeper": server.address, "TTL": patroniTTL, "Programs": programs,
			"Dir": dir, "API": ports[2*i], "Port": ports[2*i+1],
		})
		c.nodes[name] = &patroniNode{
			application{t: t, name: "patroni " + name, dir: dir, as: as,
				command: []string{python, "-m", "patroni", filepath.Join(dir, "patroni.yml")}},
			c.open(fmt.Sprintf("127.0.0.1:%d", ports[2*i+1]), "any"),
		}
		c.nodes[name].start()
	}
	c.db = c.open(fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", ports[1], ports[3]), "read-write")
	return c
}

// open returns a database at the first of the addresses that has the attributes.
func (c *patroniCluster) open(addresses, attributes string) *sql.DB {
	db, err := sql.Open("pgx", "postgres://postgres:secret@"+addresses+
		"/postgres?connect_timeout=2&default_query_exec_mode=exec&target_session_attrs="+attributes)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { db.Close() })
	return db
}

// awaitLeader waits until one of the nodes named holds the leader's znode and its
// PostgreSQL is primary, and returns it.
func (c *patroniCluster) awaitLeader(names ...string) (leader string) {
	c.t.Helper()
	await(c.t, patroniPatience, fmt.Sprintf("one of %v leads", names), func() error {
		data, _, err := c.zk.Get("/service/tenure/leader")
		if err != nil {
			return err
		}
		leader = string(data)
		var standby bool
		if err := c.nodes[leader].ask(&standby, "select pg_is_in_recovery()"); err != nil {
			return err
		}
		if standby || !slices.Contains(names, leader) {
			return fmt.Errorf("the znode is of %s, a standby: %v", leader, standby)
		}
		return nil
	})
	return leader
}

// awaitReplica waits until the leader's replica streams, and Patroni has noted that every
// acknowledged row is on it.
func (c *patroniCluster) awaitReplica(leader string) {
	c.t.Helper()
	replica := other(leader)
	await(c.t, patroniPatience, replica+" is the synchronous replica", func() error {
		var state string
		err := c.nodes[leader].ask(&state, "select state || ' ' || sync_state from pg_stat_replication where application_name = '"+replica+"'")
		if err != nil || state != "streaming sync" {
			return errors.Join(fmt.Errorf("%q is %q", replica, state), err)
		}
		noted, _, err := c.zk.Get("/service/tenure/sync")
		if err == nil && !strings.Contains(string(noted), `"sync_standby":"`+replica+`"`) {
			err = fmt.Errorf("noted is %s", noted)
		}
		return err
	})
}

// ask reads one value from a node.
func (n *patroniNode) ask(value any, query string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return n.db.QueryRowContext(ctx, query).Scan(value)
}

func other(name string) string { return map[string]string{"a": "b", "b": "a"}[name] }

// insert is an application's write: one row, at the primary.
func (c *patroniCluster) insert(n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := c.db.ExecContext(ctx, "insert into rows values ($1) on conflict do nothing", n)
	return err
}

// Goal: Patroni works with Tenure as its ZooKeeper: elections, failover without loss, the
// return of the former primary, a switchover; a restart of Tenure costs neither the leader
// nor a write. Method: a client writes to whoever is primary; kill Tenure, then the
// primary's Patroni and PostgreSQL; start them again; ask for the first primary.
func TestPatroni(t *testing.T) {
	t.Parallel()
	c := startPatroni(t)
	first := c.awaitLeader("a", "b")
	second := other(first)
	if _, err := c.db.Exec("create table rows (id int primary key)"); err != nil {
		t.Fatal(err)
	}
	writes := startWork(t, c.insert)
	c.awaitReplica(first)
	writes.goesOn(t, 50)

	c.keepsLeaderAcrossRestart(first, writes)

	c.failsOver(first)
	writes.goesOn(t, 50)

	c.nodes[first].start()
	c.awaitReplica(second)
	writes.goesOn(t, 50)

	c.switchover(second, first)
	writes.goesOn(t, 50)
	done := writes.end()
	t.Logf("%d writes were done, none for at most %v; %d attempts failed", done.done, done.pause, done.failed)
	c.haveRows(done.done)
}

// failsOver kills the leader and waits for its session's end, and for the other to lead.
func (c *patroniCluster) failsOver(first string) {
	c.t.Helper()
	c.nodes[first].crash()
	await(c.t, 2*patroniTTL*time.Second, "the znode of the leader that was killed is gone", func() error {
		data, _, err := c.zk.Get("/service/tenure/leader")
		if err == nil && string(data) == first {
			return errors.New("it is there")
		}
		return nil
	})
	c.awaitLeader(other(first))
}

// switchover asks, as an operator does, for another leader.
func (c *patroniCluster) switchover(from, to string) {
	c.t.Helper()
	n := c.nodes[to]
	ctl := exec.Command(n.command[0], "-c", "from patroni.ctl import ctl; ctl()",
		"-c", filepath.Join(n.dir, "patroni.yml"), "switchover", "tenure", "--leader", from, "--candidate", to, "--force")
	if out, err := ctl.CombinedOutput(); err != nil || !strings.Contains(string(out), "Successfully switched over") {
		c.t.Fatalf("patronictl switchover: %v\n%s", err, out)
	}
	c.awaitLeader(to)
	c.awaitReplica(to)
}

// keepsLeaderAcrossRestart kills Tenure, starts it again, and wants the same leader with
// the same session and no write that failed.
func (c *patroniCluster) keepsLeaderAcrossRestart(leader string, writes *work) {
	c.t.Helper()
	_, before, err := c.zk.Get("/service/tenure/leader")
	if err != nil {
		c.t.Fatal(err)
	}
	_, status, err := c.zk.Get("/service/tenure/status")
	if err != nil {
		c.t.Fatal(err)
	}
	was, start := writes.progress(), time.Now()
	c.server.crash()
	c.server.start()
	c.t.Logf("the server was away for %v; Patroni demotes itself after 5s, its retry_timeout", time.Since(start))
	await(c.t, patroniPatience, "the leader has written its status thrice", func() error {
		_, now, err := c.zk.Get("/service/tenure/status")
		if err == nil && now.Version < status.Version+3 {
			err = fmt.Errorf("version %d, was %d", now.Version, status.Version)
		}
		return err
	})
	data, after, err := c.zk.Get("/service/tenure/leader")
	if err != nil {
		c.t.Fatal(err)
	}
	if string(data) != leader || after.Czxid != before.Czxid || after.EphemeralOwner != before.EphemeralOwner {
		c.t.Errorf("the leader's znode is of %s, %+v; it was of %s, %+v", data, after, leader, before)
	}
	now := writes.progress()
	c.t.Logf("%d writes were done, none for at most %v", now.done-was.done, now.pause)
	if now.failed != was.failed {
		c.t.Errorf("a restart cost %d writes: %v", now.failed-was.failed, now.last)
	}
}

// haveRows wants the rows from 1 to want on both nodes.
func (c *patroniCluster) haveRows(want int) {
	c.t.Helper()
	for name, n := range c.nodes {
		await(c.t, patroniPatience, name+" has all rows", func() error {
			var count int
			err := n.ask(&count, fmt.Sprintf("select count(*) from rows where id between 1 and %d", want))
			if err == nil && count != want {
				err = fmt.Errorf("%d of %d rows", count, want)
			}
			return err
		})
	}
}
