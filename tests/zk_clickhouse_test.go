//go:build linux

package tests

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// clickHousePatience is for what a replica does after its session or its peer was lost.
const clickHousePatience = time.Minute

// clickHouse is one server, with a replica of the table events.
type clickHouse struct {
	application
	url string
}

// startClickHouse starts the servers a and b, which know each other as the cluster both.
func startClickHouse(t *testing.T, server zkServer) (a, b *clickHouse) {
	t.Helper()
	command := append(interpreter(t, "PATH=$PATH:/usr/sbin command -v clickhouse-server", []string{"sh", "-c"}),
		"PATH=$PATH:/usr/sbin exec clickhouse-server --config-file=clickhouse.xml")
	_, zkPort, err := net.SplitHostPort(server.address)
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 6)
	var both []*clickHouse
	for i, name := range []string{"a", "b"} {
		dir := t.TempDir()
		writeTemplate(t, dir, "clickhouse_users.xml", nil)
		writeTemplate(t, dir, "clickhouse.xml", map[string]any{
			"Name": name, "Dir": dir, "ZooKeeperPort": zkPort, "TCPs": ports[:2],
			"TCP": ports[i], "HTTP": ports[2+i], "Interserver": ports[4+i],
		})
		if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		c := &clickHouse{
			application{t: t, name: "clickhouse " + name, dir: dir, command: command},
			fmt.Sprintf("http://127.0.0.1:%d/", ports[2+i]),
		}
		c.start()
		both = append(both, c)
	}
	for _, c := range both {
		c.awaitAnswer("select 1", "1")
		// Before that a statement for the cluster may crash this version.
		await(t, clickHousePatience, c.name+" waits for statements for the cluster", func() error {
			if !strings.Contains(c.output.text(), "DDLWorker: Waiting a watch") {
				return errors.New("its log does not say so")
			}
			return nil
		})
	}
	return both[0], both[1]
}

// query runs a statement and returns its answer, tab-separated. Settings are key=value.
func (c *clickHouse) query(statement string, settings ...string) (string, error) {
	q := url.Values{}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		q.Set(key, value)
	}
	web := http.Client{Timeout: 30 * time.Second}
	r, err := web.Post(c.url+"?"+q.Encode(), "text/plain", strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("%s: %s", r.Status, answer), err)
	}
	return strings.TrimSpace(string(answer)), err
}

// must is query where an error fails the test.
func (c *clickHouse) must(statement string, settings ...string) string {
	c.t.Helper()
	answer, err := c.query(statement, settings...)
	if err != nil {
		c.t.Fatalf("%s: %s: %v", c.name, statement, err)
	}
	return answer
}

// awaitAnswer waits until a query has the answer.
func (c *clickHouse) awaitAnswer(query, want string) {
	c.t.Helper()
	await(c.t, clickHousePatience, fmt.Sprintf("%s answers %q to %s", c.name, want, query), func() error {
		answer, err := c.query(query)
		if err == nil && answer != want {
			err = fmt.Errorf("the answer is %q", answer)
		}
		return err
	})
}

// insert writes block n, one row. The same block again is not a second one: its hash is a znode.
func (c *clickHouse) insert(n int) error {
	_, err := c.query(fmt.Sprintf("insert into events (day, id, word) values ('2020-%02d-01', %d, 'word')", 1+n%2, n))
	return err
}

// rows is the answer to queryRows where the ids from 1 to n are there once each.
func rows(n int) string { return fmt.Sprintf("%d\t%d\t%d", n, n, n*(n+1)/2) }

const queryRows = "select count(), uniqExact(id), sum(id) from events"

// Goal: ClickHouse's replication works with Tenure as its ZooKeeper. Method: two replicas
// of a table; a client inserts at one without pause, each block until it is acknowledged,
// while the other replica and then Tenure are killed and started again; at the end both
// have every row once. Before and after that the statements that go through znodes: DDL on
// a cluster, changes of columns, merges, mutations, quorums, the removal of parts.
func TestClickHouse(t *testing.T) {
	t.Parallel()
	server := startZKServer(t)
	a, b := startClickHouse(t, server)
	znodes := server.connect(t)

	a.must("create table events on cluster both (day Date, id UInt64, word String) " +
		"engine = ReplicatedMergeTree('/clickhouse/tables/events', '{replica}') partition by toYYYYMM(day) order by id")
	for n := 1; n <= 10; n++ {
		if err := []*clickHouse{a, b}[n%2].insert(n); err != nil {
			t.Fatal(err)
		}
	}
	a.awaitAnswer(queryRows, rows(10))
	b.awaitAnswer(queryRows, rows(10))
	usesZnodes(t, znodes, a)
	changeColumns(a, b)

	inserts := startWork(t, func(n int) error { return a.insert(10 + n) })
	inserts.goesOn(t, 20)
	b.crash()
	inserts.goesOn(t, 20)
	b.start()
	b.awaitAnswer(fmt.Sprintf("select count() >= %d from events", 10+inserts.progress().done), "1")
	if now := inserts.progress(); now.failed > 0 {
		t.Errorf("%d inserts at one replica failed with the other's crash: %v", now.failed, now.last)
	}

	sessions := replicaSessions(t, znodes)
	server.crash()
	server.start()
	inserts.goesOn(t, 20)
	awaitSessionsOtherThan(t, znodes, sessions)
	for _, c := range []*clickHouse{a, b} {
		c.awaitAnswer("select is_readonly, active_replicas from system.replicas", "0\t2")
	}
	inserts.goesOn(t, 20)
	done := inserts.end()
	t.Logf("%d inserts were done, none for at most %v; %d attempts failed: %v", done.done, done.pause, done.failed, done.last)
	b.awaitAnswer(queryRows, rows(10+done.done))
	// A part whose commit the crash took with it stays a replica's own for five minutes, beside
	// the part of the next attempt. A table that is attached anew sets such parts aside.
	a.must("detach table events")
	a.must("attach table events")
	a.awaitAnswer(queryRows, rows(10+done.done))

	changeRows(a, b, 10+done.done)
	drop(t, znodes, a, b)
}

// usesZnodes wants the table in the tree, as the test's own session and as ClickHouse see it.
func usesZnodes(t *testing.T, znodes *zk.Conn, c *clickHouse) {
	t.Helper()
	for _, replica := range []string{"a", "b"} {
		path := "/clickhouse/tables/events/replicas/" + replica
		if _, stat, err := znodes.Get(path + "/is_active"); err != nil || stat.EphemeralOwner == 0 {
			t.Errorf("%s/is_active: %+v, %v", path, stat, err)
		}
		if parts, _, err := znodes.Children(path + "/parts"); err != nil || len(parts) == 0 {
			t.Errorf("%s/parts: %v, %v", path, parts, err)
		}
	}
	blocks, _, err := znodes.Children("/clickhouse/tables/events/blocks")
	if err != nil || len(blocks) != 10 {
		t.Errorf("10 inserts left the blocks %v, %v", blocks, err)
	}
	if count := c.must("select count() from system.zookeeper where path = '/clickhouse/tables/events/blocks' and ephemeralOwner = 0"); count != "10" {
		t.Errorf("ClickHouse sees %s blocks", count)
	}
}

// replicaSessions returns the sessions that say of a replica that it is active.
func replicaSessions(t *testing.T, znodes *zk.Conn) (ids []int64) {
	t.Helper()
	for _, replica := range []string{"a", "b"} {
		_, stat, err := znodes.Get("/clickhouse/tables/events/replicas/" + replica + "/is_active")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, stat.EphemeralOwner)
	}
	return ids
}

// awaitSessionsOtherThan waits until the replicas are active, and candidates for leader,
// in sessions other than the old ones: ClickHouse gives up a session with its connection.
func awaitSessionsOtherThan(t *testing.T, znodes *zk.Conn, old []int64) {
	t.Helper()
	const table = "/clickhouse/tables/events"
	await(t, clickHousePatience, "both replicas have new sessions", func() error {
		candidates, _, err := znodes.Children(table + "/leader_election")
		if err == nil && len(candidates) != 2 {
			err = fmt.Errorf("candidates %v", candidates)
		}
		paths := []string{table + "/replicas/a/is_active", table + "/replicas/b/is_active"}
		for _, candidate := range candidates {
			paths = append(paths, table+"/leader_election/"+candidate)
		}
		for _, path := range paths {
			_, stat, gone := znodes.Get(path)
			if gone == nil && slices.Contains(old, stat.EphemeralOwner) {
				gone = fmt.Errorf("%s is of %#x", path, stat.EphemeralOwner)
			}
			err = errors.Join(err, gone)
		}
		return err
	})
}

// changeColumns adds a column at one replica and drops it on both. This version's threads
// for either may end with their session (ClickHouse#3891), so it comes before any crash.
func changeColumns(a, b *clickHouse) {
	a.t.Helper()
	a.must("alter table events add column score Int32 default 7")
	b.awaitAnswer("select sum(score) from events", "70")
	b.must("alter table events on cluster both drop column score")
	a.awaitAnswer("select count() from system.columns where database = 'default' and table = 'events'", "3")
}

// changeRows merges, deletes and adds rows of the n, at one replica for both.
func changeRows(a, b *clickHouse, n int) {
	a.t.Helper()
	// The other does it, if that is the leader, which it may just have become.
	await(a.t, clickHousePatience, "parts are merged", func() error {
		_, err := b.query("optimize table events partition 202001 final")
		return err
	})
	a.awaitAnswer("select count() from system.parts where table = 'events' and active and partition = '202001'", "1")

	b.must("alter table events delete where id = 1")
	for _, c := range []*clickHouse{a, b} {
		c.awaitAnswer("select sum(is_done) from system.mutations", "1")
		c.awaitAnswer("select count(), min(id) from events", fmt.Sprintf("%d\t2", n-1))
	}
	a.must("insert into events (day, id, word) values ('2020-03-01', 1, 'again')", "insert_quorum=2", "insert_quorum_timeout=20000")
	for _, c := range []*clickHouse{a, b} {
		if count := c.must("select count() from events where word = 'again'"); count != "1" {
			c.t.Errorf("%s has %s rows of an insert with a quorum of 2", c.name, count)
		}
	}
	a.must("alter table events drop partition 202003")
	b.awaitAnswer("select count(), min(id) from events", fmt.Sprintf("%d\t2", n-1))
}

// drop removes the table, and wants nothing of it left in the tree.
func drop(t *testing.T, znodes *zk.Conn, a, b *clickHouse) {
	t.Helper()
	a.must("drop table events")
	b.must("drop table events")
	await(t, clickHousePatience, "the table's znodes are gone", func() error {
		if left, _, err := znodes.Children("/clickhouse/tables/events"); err != zk.ErrNoNode {
			return fmt.Errorf("left are %v: %v", left, err)
		}
		return nil
	})
}
