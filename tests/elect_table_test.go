package tests

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
	_ "modernc.org/sqlite"
)

// guardedTable is the database of examples/guarded-table and the tools that compete to
// write to it. For one goroutine.
type guardedTable struct {
	t     *testing.T
	db    *sql.DB
	tools map[int]*exec.Cmd // by process id
	log   *os.File
}

// row is one row of the table.
type row struct {
	id, worker int
	token      uint64
}

func newGuardedTable(t *testing.T, endpoint string) *guardedTable {
	dir := t.TempDir()
	path := filepath.Join(dir, "work.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile("../examples/guarded-table/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(string(schema)); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	g := &guardedTable{t: t, db: db, tools: map[int]*exec.Cmd{}, log: log}
	t.Cleanup(func() {
		for pid, tool := range g.tools {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_ = tool.Wait()
		}
		db.Close()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the tools said:\n%s", text)
		}
	})
	for range 3 {
		tool := exec.Command(program(t, "tenure"), "--endpoint", endpoint, "elect", "--session-timeout", "2s",
			"demo", "--", "../examples/guarded-table/worker.sh", path)
		tool.Stderr = log
		if err := tool.Start(); err != nil {
			t.Fatal(err)
		}
		g.tools[tool.Process.Pid] = tool
	}
	return g
}

// last returns the newest row.
func (g *guardedTable) last() (r row) {
	err := g.db.QueryRow("select id, worker, token from work order by id desc limit 1").Scan(&r.id, &r.worker, &r.token)
	if err != nil && err != sql.ErrNoRows {
		g.t.Fatal(err)
	}
	return r
}

// await waits until what holds.
func (g *guardedTable) await(what string, holds func() bool) {
	g.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			g.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// next waits for a row with a token above the one given and returns it.
func (g *guardedTable) next(token uint64) (r row) {
	g.t.Helper()
	g.await(fmt.Sprint("a row with a token above ", token), func() bool {
		r = g.last()
		return r.token > token
	})
	return r
}

// alive reports whether a process runs.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// toolOf returns the tool that runs a worker.
func (g *guardedTable) toolOf(worker int) int {
	g.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", worker))
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || g.tools[pid] == nil {
				g.t.Fatalf("worker %d has parent %s, which is no tool of ours", worker, value)
			}
			return pid
		}
	}
	g.t.Fatalf("worker %d has no parent", worker)
	return 0
}

func (g *guardedTable) signal(pid int, s syscall.Signal) {
	g.t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		g.t.Fatal(err)
	}
}

// verify checks the whole table: tokens never go down, and each belongs to one worker.
func (g *guardedTable) verify() (rows int) {
	all, err := g.db.Query("select id, worker, token from work order by id")
	if err != nil {
		g.t.Fatal(err)
	}
	defer all.Close()
	var last row
	for ; all.Next(); rows++ {
		var r row
		if err := all.Scan(&r.id, &r.worker, &r.token); err != nil {
			g.t.Fatal(err)
		}
		if r.token < last.token || r.token == last.token && r.worker != last.worker {
			g.t.Errorf("row %+v after %+v", r, last)
		}
		last = r
	}
	return rows
}

// Goal: of three tools that run one worker where it leads, one at a time writes to the
// guarded table, whatever becomes of the tools. Method: the leader's tool is killed, the
// next one stopped and resumed, the third asked to end; the table tells who wrote. On a
// tenured and on a ZooKeeper.
func TestElectGuardedTable(t *testing.T) {
	t.Run("tenure", func(t *testing.T) { electGuardedTable(t, newCLIServer(t).address) })
	t.Run("zookeeper", func(t *testing.T) {
		z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{Servers: 1})
		electGuardedTable(t, "zk://"+z.Addrs()[0])
	})
}

func electGuardedTable(t *testing.T, endpoint string) {
	g := newGuardedTable(t, endpoint)
	began := time.Now()
	step := func(what string) { t.Logf("%6.2f s  %s", time.Since(began).Seconds(), what) }
	first := g.next(0)
	step("the first writes")
	killed := g.toolOf(first.worker)
	g.signal(killed, syscall.SIGKILL)
	g.await("the killed tool's worker ends", func() bool { return !alive(first.worker) })

	step("its tool was killed, and its worker with it")
	second := g.next(first.token)
	step("the second writes")
	stopped := g.toolOf(second.worker)
	g.signal(stopped, syscall.SIGSTOP)
	third := g.next(second.token)
	step("its tool was stopped, and the third writes")
	g.await("the stopped tool's worker is refused", func() bool { return !alive(second.worker) })

	g.signal(stopped, syscall.SIGCONT)
	g.signal(g.toolOf(third.worker), syscall.SIGTERM)
	g.await("the third tool's worker ends", func() bool { return !alive(third.worker) })
	step("the third has ended")
	t.Logf("tokens %d, %d, %d; %d rows", first.token, second.token, third.token, g.verify())
}
