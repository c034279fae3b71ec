//go:build unix

package recipestest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Where Debian puts the server; its manifest names the jars that it needs.
var zooKeeperJars = []string{
	"/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-log4j12.jar",
	"/usr/share/java/log4j-1.2.jar", "/usr/share/java/servlet-api.jar",
}

const (
	zooKeeperStartMax = 60 * time.Second // a JVM on a busy machine
	zooKeeperPoll     = 20 * time.Millisecond
)

// zooKeeperServer is one server and, while it runs, its process.
type zooKeeperServer struct {
	dir       string
	addr      string
	adminAddr string
	args      []string

	mu struct {
		sync.Mutex
		process *os.Process   // nil: not running
		ended   chan struct{} // closed when the process was waited for
	}
}

// portsOfServer are those for clients, followers, elections and HTTP.
const portsOfServer = 4

// newZooKeeperServer writes the configuration of server i, whose ports begin at
// ports[portsOfServer*i].
func newZooKeeperServer(dir string, i int, ports []int, o ZooKeeperOptions) (*zooKeeperServer, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoZooKeeper, err)
	}
	for _, jar := range zooKeeperJars {
		if _, err := os.Stat(jar); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoZooKeeper, err)
		}
	}
	all, ports := ports, ports[portsOfServer*i:]
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	config := fmt.Sprintf("tickTime=%d\ninitLimit=100\nsyncLimit=20\ndataDir=%s\n"+
		"clientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=%t\n"+
		"admin.serverAddress=127.0.0.1\nadmin.serverPort=%d\n"+
		"maxClientCnxns=0\n4lw.commands.whitelist=*\nextendedTypesEnabled=true\n",
		o.TickTime.Milliseconds(), data, ports[0], o.Admin, ports[3]) + o.Config
	main := "org.apache.zookeeper.server.ZooKeeperServerMain"
	if o.Servers > 1 {
		main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
		for j := range o.Servers {
			config += fmt.Sprintf("server.%d=127.0.0.1:%d:%d\n", j+1, all[portsOfServer*j+1], all[portsOfServer*j+2])
		}
	}
	log4j := "log4j.rootLogger=WARN, console\nlog4j.appender.console=org.apache.log4j.ConsoleAppender\n" +
		"log4j.appender.console.layout=org.apache.log4j.PatternLayout\n" +
		"log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p %m%n\n"
	for name, text := range map[string]string{
		"zoo.cfg": config, "log4j.properties": log4j, "data/myid": fmt.Sprintln(i + 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	args := []string{java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.forceSync=no",
		"-Dzookeeper.extendedTypesEnabled=true", "-Dznode.container.checkIntervalMs=500"}
	args = append(args, o.JVM...)
	args = append(args, "-cp", dir+":"+strings.Join(zooKeeperJars, ":"), main, filepath.Join(dir, "zoo.cfg"))
	return &zooKeeperServer{dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", ports[0]),
		adminAddr: fmt.Sprintf("127.0.0.1:%d", ports[3]), args: args}, nil
}

// start starts the process. It lives until stop, or on Linux until this process ends.
func (s *zooKeeperServer) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.process != nil {
		return fmt.Errorf("ZooKeeper at %s runs already", s.addr)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.dir
	cmd.SysProcAttr = dieWithParent()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel's "parent" is the thread that started it, so that is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		log.Close()
		started <- err
		if err == nil {
			cmd.Wait() // killed: its error says no more
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.mu.process, s.mu.ended = cmd.Process, ended
	return nil
}

func (s *zooKeeperServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.process == nil {
		return
	}
	s.mu.process.Kill() // an error says that it has ended
	<-s.mu.ended
	s.mu.process = nil
}

func (s *zooKeeperServer) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.process == nil {
		return fmt.Errorf("ZooKeeper at %s does not run", s.addr)
	}
	return s.mu.process.Signal(sig)
}

func (s *zooKeeperServer) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.process != nil
}

// await waits until the server serves, or only answers.
func (s *zooKeeperServer) await(serves bool) error {
	s.mu.Lock()
	ended := s.mu.ended
	s.mu.Unlock()
	deadline := time.NewTimer(zooKeeperStartMax)
	defer deadline.Stop()
	poll := time.NewTicker(zooKeeperPoll)
	defer poll.Stop()
	for {
		if mode, err := s.mode(); err == nil && (mode != "" || !serves) {
			return nil
		}
		select {
		case <-poll.C:
		case <-ended:
			return s.failure("ended")
		case <-deadline.C:
			return s.failure("does not serve")
		}
	}
}

// failure is an error with the end of the server's log.
func (s *zooKeeperServer) failure(what string) error {
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	return errors.Join(fmt.Errorf("ZooKeeper at %s %s; its log ends: %s", s.addr, what, log[max(0, len(log)-2000):]), err)
}

// mode asks the server what it is: "standalone", "leader", "follower", or "" while it
// serves nobody.
func (s *zooKeeperServer) mode() (string, error) {
	answer, err := s.ask("srvr")
	for line := range strings.Lines(answer) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", err
}

// ask sends a four-letter word.
func (s *zooKeeperServer) ask(word string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// FreePorts returns n different ports of 127.0.0.1 that nobody listens on.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all are held until the last is known, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
