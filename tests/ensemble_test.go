package tests

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// ensembleOptions says what to start. The zero value is three members that reach each
// other directly.
type ensembleOptions struct {
	members int           // how many, default 3
	links   bool          // they reach each other through links, to be disturbed
	faults  bool          // their disks fail on demand
	dirs    []string      // where each has its data, default folders that are kept if the test fails
	timeout time.Duration // of elections, default 1 s
	args    []string      // further flags of each
}

// ensemble is real daemons on loopback that are members of one ensemble. Their addresses
// stay the same over restarts. Its methods may be called by any number of goroutines,
// those that start and end a member by one at a time for each member.
type ensemble struct {
	t       *testing.T
	members []*ensembleMember // in the order of their ids, which begin with 1
	links   *links            // nil if they reach each other directly
}

// ensembleMember is one of them.
type ensembleMember struct {
	t              *testing.T
	id             int
	dir            string // its data directory
	command        []string
	http, zk, peer string   // its addresses
	log            *os.File // what its processes print; nil: nobody keeps it
	running        atomic.Pointer[daemon]
	stopped        atomic.Bool // by pause
}

// electionTimeout is the default of tenured.
const electionTimeout = time.Second

// startEnsemble starts an ensemble and waits until all members serve. It is killed at the
// end of the test.
func startEnsemble(t *testing.T, o ensembleOptions) *ensemble {
	t.Helper()
	e := newEnsemble(t, o)
	e.startAll()
	return e
}

// newEnsemble makes an ensemble that is not started.
func newEnsemble(t *testing.T, o ensembleOptions) *ensemble {
	t.Helper()
	e := &ensemble{t: t}
	tenured := program(t, "tenured")
	if o.faults {
		tenured = faultyProgram(t)
	}
	if o.members == 0 {
		o.members = 3
	}
	if o.dirs == nil {
		o.dirs = e.keep(o.members)
	}
	e.endWithTest()
	for i := range o.members {
		m := e.add(o.dirs[i])
		m.http, m.zk, m.peer = quietPort(t), quietPort(t), quietPort(t)
	}
	var founders, targets []string
	for _, m := range e.members {
		targets = append(targets, m.peer)
	}
	if o.links {
		e.links = newLinks(t, targets)
	}
	advertised := func(m *ensembleMember) string {
		if e.links != nil {
			return e.links.address(m.id)
		}
		return m.peer
	}
	for _, m := range e.members {
		founders = append(founders, fmt.Sprintf("%d=%s", m.id, advertised(m)))
	}
	for _, m := range e.members {
		m.command = append([]string{tenured, "--data-dir", m.dir, "--member-id", fmt.Sprint(m.id), "--listen", m.http,
			"--zk-listen", m.zk, "--peer-listen", m.peer, "--peer-advertise", advertised(m), "--cluster", "test",
			"--initial-members", strings.Join(founders, ",")}, o.args...)
		if o.timeout != 0 {
			m.command = append(m.command, "--election-timeout", o.timeout.String())
		}
	}
	return e
}

// endWithTest kills all members in the end: behind what closes the clients, whatever was
// started again meanwhile.
func (e *ensemble) endWithTest() {
	e.t.Cleanup(func() {
		for _, m := range e.members {
			if m.running.Load() != nil {
				m.kill()
			}
			if m.log != nil {
				m.log.Close()
			}
		}
	})
}

// keep makes folders for the data of n members, which are kept if the test fails.
func (e *ensemble) keep(n int) (dirs []string) {
	e.t.Helper()
	parent, err := os.MkdirTemp("", "tenure-ensemble-")
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if e.t.Failed() {
			e.t.Logf("data and logs of the members are kept in %s", parent)
		} else {
			os.RemoveAll(parent)
		}
	})
	for i := range n {
		dir := filepath.Join(parent, fmt.Sprint(i+1))
		if err := os.Mkdir(dir, 0o700); err != nil {
			e.t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// add adds a member whose data are below dir, where its log is, too.
func (e *ensemble) add(dir string) *ensembleMember {
	e.t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		e.t.Fatal(err)
	}
	m := &ensembleMember{t: e.t, id: len(e.members) + 1, dir: filepath.Join(dir, "data"), log: log}
	e.members = append(e.members, m)
	return m
}

// faultyProgram builds the daemon whose disk fails on demand, once.
func faultyProgram(t *testing.T) string {
	t.Helper()
	path, err := buildFaulty()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var buildFaulty = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programsDir, "tenured-faults")
	if os.Getenv(inLAN) != "" {
		return path, nil
	}
	out, err := exec.Command("go", "build", "-tags", "faults", "-o", path, "../cmd/tenured").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// startAll starts the members that do not run, and waits until all serve.
func (e *ensemble) startAll() {
	e.t.Helper()
	var spawned []*ensembleMember
	for _, m := range e.members {
		if !m.runs() {
			m.spawn()
			spawned = append(spawned, m)
		}
	}
	for _, m := range spawned {
		m.await()
	}
}

// member returns the one with that id.
func (e *ensemble) member(id int) *ensembleMember { return e.members[id-1] }

// others are all members but one.
func (e *ensemble) others(m *ensembleMember) []*ensembleMember {
	return slices.DeleteFunc(slices.Clone(e.members), func(o *ensembleMember) bool { return o == m })
}

// spawn starts the member, which serves once most of the ensemble runs.
func (m *ensembleMember) spawn() {
	m.t.Helper()
	m.running.Store(spawnLogged(m.t, m.dir, m.log, m.command...))
	m.stopped.Store(false)
}

// await waits until the member serves.
func (m *ensembleMember) await() {
	m.t.Helper()
	if d := m.running.Load(); d != nil {
		if err := d.await(); err != nil {
			m.t.Fatalf("member %d: %v\n%s", m.id, err, d.output.Bytes())
		}
	}
}

// start starts the member and waits until it serves.
func (m *ensembleMember) start() {
	m.t.Helper()
	m.spawn()
	m.await()
}

// runs reports whether the member's process was started and not ended by the test.
func (m *ensembleMember) runs() bool {
	d := m.running.Load()
	return d != nil && d.cmd.ProcessState == nil
}

// kill ends the member as kill -9 does.
func (m *ensembleMember) kill() { m.running.Load().kill() }

// stop ends the member in good order.
func (m *ensembleMember) stop() {
	m.t.Helper()
	if d := m.running.Load(); d.stop() != 0 {
		m.t.Errorf("member %d: exit code %d after SIGTERM\n%s", m.id, d.cmd.ProcessState.ExitCode(), d.output.Bytes())
	}
}

// pause stands the member's process still with all connections open, until resume.
func (m *ensembleMember) pause() { m.stopped.Store(true); m.running.Load().signal(syscall.SIGSTOP) }

func (m *ensembleMember) resume() { m.running.Load().signal(syscall.SIGCONT); m.stopped.Store(false) }

// disk makes the disk of a member fail: lines of the file that server's disk describes;
// none ends it.
func (m *ensembleMember) disk(faults ...string) {
	m.t.Helper()
	next := filepath.Join(m.dir, "faults.next")
	err := os.WriteFile(next, []byte(strings.Join(faults, "\n")), 0o600)
	if err == nil {
		err = os.Rename(next, filepath.Join(m.dir, "faults"))
	}
	if err != nil {
		m.t.Error(err)
	}
}

// dial connects to the member's websocket and HTTP port, whatever address is asked for.
func (m *ensembleMember) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, m.http)
}

// endpoints are where clients reach the members, below chroot.
func (e *ensemble) endpoints(chroot string) (all []string) {
	for _, m := range e.members {
		all = append(all, m.http+chroot)
	}
	return all
}

// servers are endpoints of ZooKeeper's protocol.
func (e *ensemble) servers() (all []string) {
	for _, m := range e.members {
		all = append(all, m.zk)
	}
	return all
}

// connect opens a session that may move between all members, or between those in
// o.Endpoints. It is closed at the end of the test.
func (e *ensemble) connect(o client.Options) *client.Client {
	e.t.Helper()
	if o.Endpoints == nil {
		o.Endpoints = e.endpoints("")
	}
	return openSession(e.t, o)
}

// connectTo is connect to one member.
func (e *ensemble) connectTo(m *ensembleMember, o client.Options) *client.Client {
	e.t.Helper()
	o.Endpoints = []string{m.http}
	return e.connect(o)
}
