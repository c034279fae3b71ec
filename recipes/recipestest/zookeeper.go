//go:build unix

package recipestest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ErrNoZooKeeper says that java or Debian's package zookeeper is not installed.
var ErrNoZooKeeper = errors.New("no ZooKeeper here: apt-get install zookeeper")

// ZooKeeperOptions says what to start. The zero value is one server.
type ZooKeeperOptions struct {
	Servers int // 1 (the default) or more: an ensemble of so many
	// TickTime is the servers' tick, default 200 ms. Sessions get from 2 to 20 ticks, and
	// expiry is rounded up to a tick.
	TickTime time.Duration
	// Admin starts each server's AdminServer, too, which takes about a second more.
	Admin bool
	// Config is further lines of zoo.cfg, JVM further arguments of java, such as
	// -Dname=value.
	Config string
	JVM    []string
}

// ZooKeeper is real ZooKeeper servers on loopback. Its methods may be called from any
// goroutine, those on one server by one at a time.
type ZooKeeper struct {
	servers []*zooKeeperServer
}

// StartZooKeeper starts servers that live as long as the test, and waits until they
// serve. Without ZooKeeper the test is skipped, or fails if TENURE_REQUIRE_FOREIGN=1.
func StartZooKeeper(t testing.TB, o ZooKeeperOptions) *ZooKeeper {
	t.Helper()
	z, err := LaunchZooKeeper(t.TempDir(), o)
	requireZooKeeper(t, err)
	t.Cleanup(z.Close)
	return z
}

func requireZooKeeper(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNoZooKeeper) && os.Getenv("TENURE_REQUIRE_FOREIGN") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// LaunchZooKeeper starts servers with their data below dir and waits until they serve.
// They are killed by Close, and on Linux with this process. ErrNoZooKeeper says that
// there is none.
func LaunchZooKeeper(dir string, o ZooKeeperOptions) (*ZooKeeper, error) {
	if o.Servers == 0 {
		o.Servers = 1
	}
	if o.TickTime == 0 {
		o.TickTime = 200 * time.Millisecond
	}
	var err error
	for try := range 3 { // ports that were free may be taken meanwhile
		var z *ZooKeeper
		if z, err = launchZooKeeper(filepath.Join(dir, fmt.Sprint(try)), o); err == nil || errors.Is(err, ErrNoZooKeeper) {
			return z, err
		}
	}
	return nil, err
}

func launchZooKeeper(dir string, o ZooKeeperOptions) (*ZooKeeper, error) {
	ports, err := FreePorts(portsOfServer * o.Servers)
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{}
	for i := range o.Servers {
		s, err := newZooKeeperServer(filepath.Join(dir, fmt.Sprint(i)), i, ports, o)
		if err != nil {
			return nil, err
		}
		z.servers = append(z.servers, s)
	}
	for _, s := range z.servers {
		if err = s.start(); err != nil {
			break
		}
	}
	for i := 0; err == nil && i < len(z.servers); i++ {
		err = z.servers[i].await(true)
	}
	if err != nil {
		z.Close()
		return nil, err
	}
	return z, nil
}

// Addrs returns host:port of every server, in order.
func (z *ZooKeeper) Addrs() []string {
	var addrs []string
	for _, s := range z.servers {
		addrs = append(addrs, s.addr)
	}
	return addrs
}

// AdminAddr returns host:port of the HTTP port of server i, if ZooKeeperOptions.Admin was set.
func (z *ZooKeeper) AdminAddr(i int) string { return z.servers[i].adminAddr }

// Stop kills server i as kill -9 does and waits for its end.
func (z *ZooKeeper) Stop(i int) { z.servers[i].stop() }

// Start starts server i again with its data and port. It waits until the server serves,
// or, if most of the ensemble is stopped, until it answers.
func (z *ZooKeeper) Start(i int) error {
	if err := z.servers[i].start(); err != nil {
		return err
	}
	running := 0
	for _, s := range z.servers {
		if s.running() {
			running++
		}
	}
	return z.servers[i].await(2*running > len(z.servers))
}

// Pause stops server i as SIGSTOP does.
func (z *ZooKeeper) Pause(i int) error { return z.servers[i].signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (z *ZooKeeper) Resume(i int) error { return z.servers[i].signal(syscall.SIGCONT) }

// Leader returns the index of the ensemble's leader, or of the only server; -1 if no
// server says that it is.
func (z *ZooKeeper) Leader() int {
	for i, s := range z.servers {
		if mode, _ := s.mode(); mode == "leader" || mode == "standalone" {
			return i
		}
	}
	return -1
}

// HasSession reports whether a server that answers knows the session or an ephemeral of
// it.
func (z *ZooKeeper) HasSession(id int64) bool {
	for _, s := range z.servers {
		if dump, _ := s.ask("dump"); strings.Contains(dump, fmt.Sprintf("0x%x", uint64(id))) {
			return true
		}
	}
	return false
}

// Close kills all servers and waits for their end. It may be called again.
func (z *ZooKeeper) Close() {
	for _, s := range z.servers {
		s.stop()
	}
}

// SharedZooKeeper is servers that the tests of a package share, since a start takes
// seconds: started by the first Get, ended by Close in TestMain. Any number of goroutines
// may use it.
type SharedZooKeeper struct {
	Options ZooKeeperOptions

	once sync.Once
	dir  string
	z    *ZooKeeper
	err  error
}

// Get returns the servers. Without ZooKeeper the test is skipped, or fails if
// TENURE_REQUIRE_FOREIGN=1.
func (s *SharedZooKeeper) Get(t testing.TB) *ZooKeeper {
	t.Helper()
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "zookeeper"); s.err == nil {
			s.z, s.err = LaunchZooKeeper(s.dir, s.Options)
		}
	})
	requireZooKeeper(t, s.err)
	return s.z
}

// Close kills the servers and removes their data. After it there is no Get.
func (s *SharedZooKeeper) Close() {
	s.once.Do(func() { s.err = errors.New("closed") })
	if s.z != nil {
		s.z.Close()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}
