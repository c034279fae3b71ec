package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenure-dev/tenure/bench"
	zkrecipes "github.com/tenure-dev/tenure/recipes/zk"
)

const (
	// electionTimeout is the session timeout where --session-timeout does not say: the
	// least that a ZooKeeper with the usual tick grants.
	electionTimeout = 4 * time.Second
	// zkTick is ZooKeeper's tickTime where neither the server nor --tick says.
	zkTick = 2 * time.Second
	// wordLimit bounds the wait for the answer to a four-letter word.
	wordLimit = 2 * time.Second
)

// benchElection is one run of "bench election".
type benchElection struct {
	app                *app
	config             bench.ElectionConfig
	targets            []string
	apps               []*app // of each target, with its endpoints
	tick               time.Duration
	jsonFile, htmlFile string
}

func newBenchElectionCommand(a *app) *cobra.Command {
	k := &benchElection{app: a}
	cmd := &cobra.Command{
		Use:   "election",
		Short: "Measure how long elections take to hand over, on backends side by side",
		Long: `Measure elections (package recipes) on one or more backends, side by side in one run:
how long a hand-over takes after a release and after a crash, what candidates ask for
meanwhile, with few candidates in line and with many, and what it costs to hold many
tenures on one session. It works below a fresh node, and removes it afterwards.

A crash is a holder whose connection goes silent: neither its session nor its connection
is closed. The next one leads when the session has expired, on ZooKeeper after a hold-off
besides, and the report compares that with the bound.

  tenure bench election --target ws://127.0.0.1:2180 --target zk://127.0.0.1:2181

Every further target is compared with the first. Without --target it is what --endpoint
names. --session-timeout is ` + electionTimeout.String() + ` here unless it is given.`,
		Args: args("no argument", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := k.prepare(cmd.Flags()); err != nil {
				return err
			}
			return k.run(cmd.Context())
		},
	}
	f, c := cmd.Flags(), &k.config
	f.StringArrayVar(&k.targets, "target", nil, "a backend: `ws://HOST:PORT` or zk://HOST:PORT,HOST:PORT/PATH; repeat it to compare")
	f.IntVar(&c.Candidates, "candidates", 3, "candidates of the election that is handed over, each with a session")
	f.IntVar(&c.Rounds, "rounds", 500, "clean hand-overs")
	f.IntVar(&c.Crashes, "crashes", 20, "hand-overs after a crash")
	f.IntVar(&c.Waiting, "waiting", 1000, "candidates in line at once")
	f.IntVar(&c.Tenures, "tenures", 1000, "tenures held on one session")
	f.DurationVar(&k.tick, "tick", 0, "tickTime of a ZooKeeper that does not tell it (four-letter word conf); default "+zkTick.String())
	f.StringVar(&c.Label, "label", "", "name of this run in reports")
	f.StringVar(&k.jsonFile, "json", "", "write the report as JSON to `FILE`")
	f.StringVar(&k.htmlFile, "html", "", "write the report as a page with plots to `FILE`")
	return cmd
}

// prepare judges flags, before anything is sent.
func (k *benchElection) prepare(flags *pflag.FlagSet) error {
	for _, name := range []string{"candidates", "rounds", "crashes", "waiting", "tenures"} {
		if n, err := flags.GetInt(name); err != nil || n < 1 {
			return usagef("--%s %d: must be above 0", name, n)
		}
	}
	if k.tick < 0 {
		return usagef("--tick %v: must not be negative", k.tick)
	}
	k.config.SessionTimeout = electionTimeout
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "auth" { // secret
			k.config.Flags = append(k.config.Flags, "--"+f.Name+"="+f.Value.String())
		}
		if f.Name == "session-timeout" {
			k.config.SessionTimeout = k.app.sessionTimeout
		}
	})
	if len(k.targets) == 0 {
		one := *k.app
		k.apps = []*app{&one}
	}
	for _, target := range k.targets {
		one := *k.app
		one.endpoints = strings.Split(target, ",")
		k.apps = append(k.apps, &one)
	}
	for _, one := range k.apps {
		t, err := one.electionTarget()
		if err != nil {
			return err
		}
		k.config.Targets = append(k.config.Targets, t)
	}
	if err := k.config.Validate(); err != nil {
		return usagef("bench election: %v", err)
	}
	return nil
}

// electionTarget is what the app's endpoints name, without having asked them.
func (a *app) electionTarget() (t bench.ElectionTarget, err error) {
	servers, err := a.servers()
	if err != nil {
		return t, err
	}
	if !servers[0].zk {
		o, err := a.options(servers)
		return bench.ElectionTarget{Name: "Tenure " + where(servers), Tenure: &o}, err
	}
	a.tokenFile = "" // it is for the targets that are Tenure's
	o, err := a.zkOptions(servers)
	s := zkrecipes.Options{Servers: o.servers, Chroot: o.chroot, TLS: o.tls}
	for _, id := range o.auth {
		s.Auth = append(s.Auth, zkrecipes.Auth(id))
	}
	return bench.ElectionTarget{Name: "ZooKeeper " + where(servers), ZooKeeper: &s}, err
}

func (k *benchElection) run(ctx context.Context) error {
	if k.app.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.app.timeout)
		defer cancel()
	}
	for i := range k.config.Targets {
		if err := k.ask(ctx, k.apps[i], &k.config.Targets[i]); err != nil {
			return err
		}
	}
	if k.app.stderrIsTerminal {
		k.config.Progress = func(target, part string) {
			fmt.Fprintf(k.app.stderr, "%s%s: %s", clearLine, k.app.text(target), part)
		}
	}
	report, err := bench.ExecuteElection(ctx, k.config)
	if k.app.stderrIsTerminal {
		fmt.Fprint(k.app.stderr, clearLine)
	}
	if err != nil {
		if ctx.Err() == nil {
			err = &requestError{"bench election", err}
		}
		return err
	}
	write := report.WriteTable
	if k.app.output == outputJSON {
		write = report.WriteJSON
	}
	return errors.Join(write(k.app.out), writeReport(k.jsonFile, report.WriteJSON), writeReport(k.htmlFile, report.WriteHTML))
}

// ask opens a session, so that a server that is not there is told as with other verbs,
// and learns what the server tells of itself.
func (k *benchElection) ask(ctx context.Context, one *app, t *bench.ElectionTarget) error {
	store, err := one.openStore(ctx)
	if err != nil {
		return err
	}
	_ = store.Close() // it was only a question
	if t.Tenure != nil {
		servers, err := one.servers()
		if err == nil {
			t.Version = one.serverVersion(ctx, servers[0])
		}
		return err
	}
	t.Tick = zkTick
	if k.tick > 0 {
		t.Tick = k.tick
	}
	if t.ZooKeeper.TLS != nil {
		return nil
	}
	told := zkWord(ctx, t.ZooKeeper.Servers[0], "srvr", "Zookeeper version: ")
	t.Version, _, _ = strings.Cut(told, ",")
	if ms, err := strconv.Atoi(zkWord(ctx, t.ZooKeeper.Servers[0], "conf", "tickTime=")); err == nil && k.tick == 0 {
		t.Tick = time.Duration(ms) * time.Millisecond
	}
	return nil
}

// zkWord asks a ZooKeeper a four-letter word and returns what follows begin in the first
// line that begins so, "" if there is none: a server may be told not to answer.
func zkWord(ctx context.Context, server, word, begin string) string {
	ctx, cancel := context.WithTimeout(ctx, wordLimit)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return ""
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	if _, err := io.WriteString(nc, word); err != nil {
		return ""
	}
	answer, _ := io.ReadAll(io.LimitReader(nc, answerMax)) // what came counts
	for line := range strings.Lines(string(answer)) {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return oneLine(strings.TrimSpace(rest))
		}
	}
	return ""
}
