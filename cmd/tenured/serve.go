package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/tenure-dev/tenure/server"
)

// serve runs the server until ctx ends or it fails.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	moreProcessors()
	f := newFlags()
	l, err := f.load(args)
	if err != nil {
		return err
	}
	c := l.Config
	log := newLogger(&c, stderr)
	for _, z := range l.ZooCfg {
		if z.Felt {
			log.Warn("zoo.cfg: " + z.String())
		} else {
			log.Info("zoo.cfg: " + z.String())
		}
	}
	for _, warning := range l.Warnings {
		log.Warn(warning)
	}
	dir, err := openDataDir(c.DataDir)
	if err != nil {
		return err
	}
	defer dir.close() // last: whoever gets the directory next finds it at rest
	s, err := server.Open(c, log)
	if err != nil {
		return err
	}
	doors := addressesOf(s, &c)
	served := s.Serving()
	select {
	case <-served:
	default:
		log.Info("waiting for a majority of the members", doors...)
	}
	for running := true; running; {
		select {
		case <-served:
			announce(stdout, log, &c, doors, f.hints)
			served = nil
		case <-ctx.Done():
			log.Info("signal received, stopping; a second one stops at once")
			running = false
		case <-s.Failed():
			err = s.Err()
			running = false
		}
	}
	stopping, cancel := context.WithTimeout(context.Background(), c.ShutdownTimeout)
	defer cancel()
	if stopErr := s.Shutdown(stopping); err == nil {
		err = stopErr
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// moreProcessors gives the scheduler two processors more than there are cores, unless the
// environment says how many. A thread that comes back from a sync of the log needs one
// to go on; with as many as there are cores it waits behind whatever requests are being
// served, and everybody waits for the log. (Measured on 2 cores: 16 clients that create
// one znode after the other got a third more done.)
func moreProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	}
}

// announce says that requests are served from now on: one line that scripts wait for,
// a record in the log, and for people what to try.
func announce(stdout io.Writer, log *slog.Logger, c *server.Config, doors []any, hints bool) {
	b := server.Build()
	fmt.Fprint(stdout, "tenured ready")
	for i := 0; i < len(doors); i += 2 {
		fmt.Fprintf(stdout, " %s=%s", doors[i], doors[i+1])
	}
	fmt.Fprintf(stdout, " data-dir=%s version=%s\n", quoteIfNeeded(c.DataDir), b.Version)
	log.Info("ready", append(doors, "data_dir", c.DataDir, "version", b.Version, "commit", b.Commit,
		"tls", c.TLS.CertFile != "", "pid", os.Getpid())...)
	if c.Insecure && c.TLS.ClientAuth != server.ClientAuthRequire {
		log.Warn("insecure is set: everybody who reaches these addresses may use the server", doors...)
	}
	addr := doors[1].(string)
	if file, ok := stdout.(*os.File); hints || ok && term.IsTerminal(int(file.Fd())) {
		printHints(stdout, c, addr)
	}
}

// addressesOf lists the doors that are open, each as setting and address, and which member
// it is if there can be others.
func addressesOf(s *server.Server, c *server.Config) []any {
	doors := []any{"listen", s.Addr().String()}
	if a := s.ZKAddr(); a != nil {
		doors = append(doors, "zk-listen", a.String())
	}
	if a := s.ZKTLSAddr(); a != nil {
		doors = append(doors, "zk-tls-listen", a.String())
	}
	if a := s.PeerAddr(); a != nil {
		doors = append(doors, "member", strconv.Itoa(c.MemberID), "peer-listen", a.String())
	}
	return doors
}

// quoteIfNeeded keeps the ready line one word per value.
func quoteIfNeeded(text string) string {
	if strings.ContainsAny(text, " \t\n\"=") {
		return strconv.Quote(text)
	}
	return text
}

func printHints(w io.Writer, c *server.Config, addr string) {
	tool, url := toolPath(), "http://"+addr
	fmt.Fprintf(w, "\nTry in another terminal:\n\n")
	if c.TLS.CertFile != "" {
		url = "https://" + addr
		fmt.Fprintf(w, "  export TENURE_ENDPOINTS=wss://%s\n", addr)
	} else if addr != (server.Config{}).WithDefaults().Listen {
		fmt.Fprintf(w, "  export TENURE_ENDPOINTS=%s\n", addr)
	}
	fmt.Fprintf(w, `  %[1]s create /hello world
  %[1]s get /hello
  %[1]s watch --recursive /     # and change something elsewhere
  %[1]s ls --long /
  %[1]s status
  curl %[2]s/healthz

The admin token is in %[3]s.
Ctrl-C stops the server in order; kill -9 it if you like: nothing acknowledged is lost.

`, tool, url, filepath.Join(c.DataDir, server.AdminTokenFile))
}

// toolPath is how to call the command line tool: the one beside this program, as it is
// reached from here, or what PATH has.
func toolPath() string {
	self, err := os.Executable()
	if err != nil {
		return "tenure"
	}
	tool := filepath.Join(filepath.Dir(self), "tenure")
	if _, err := os.Stat(tool); err != nil {
		return "tenure"
	}
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, tool); err == nil && filepath.IsLocal(rel) {
			return "." + string(filepath.Separator) + rel
		}
	}
	return tool
}

// newLogger makes the one logger of the process.
func newLogger(c *server.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		level = slog.LevelInfo // cannot be: the configuration is valid
	}
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
