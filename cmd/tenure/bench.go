package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenure-dev/tenure/bench"
)

// reportMax bounds the file of --compare.
const reportMax = 64 << 20

// benchCommand is one run of "bench".
type benchCommand struct {
	app                             *app
	config                          bench.Config
	suite                           string
	shape                           bench.Shape
	target                          string // zk://HOST:PORT,..., "" = a Tenure server
	serverPIDs                      []int
	versus                          string // a second one, zk://HOST:PORT,...
	versusPIDs                      []int
	jsonFile, htmlFile, compareFile string
	earlier                         *bench.Report
}

func newBenchCommand(a *app) *cobra.Command {
	k := &benchCommand{app: a}
	cmd := &cobra.Command{
		Use:   "bench [WORKLOAD...]",
		Short: "Measure throughput and latency of a server",
		Long: `Put load on a server and report throughput, latency, errors and CPU time per operation.
It creates nodes below the root (or the endpoint's chroot), and removes them afterwards.

Workloads:
` + bench.WorkloadHelp() + `
Without a workload, or with --suite, each of create, set, get, list, mixed and churn (or
those named) runs at a fixed set of shapes: quick is 1x1 and 16x16, full is 1x1, 16x1,
64x1, 1x64, 16x16 and 64x16 connections x outstanding requests. Otherwise each workload
runs at --connections x --outstanding. A row create 1x1 and a probe of the disk and of
loopback are part of every run: they tell how close one durable write comes to what the
machine allows.

Without --rate the loop is closed: each of the requests in flight is followed by the next
when it is answered. With it requests are due at that rate whatever happens, and latency
counts from when they were due.

The servers' CPU time is read from /metrics of all endpoints. With --target zk:// the same
load goes to servers that speak ZooKeeper's protocol, through connections that only
pipeline and are spread over the servers. With --versus zk:// each row is measured on
others, too, right before or behind the first, and the ratios are printed.`,
		ValidArgs: bench.WorkloadNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.prepare(cmd.Flags(), args); err != nil {
				return err
			}
			return k.run(cmd.Context())
		},
	}
	k.addFlags(cmd.Flags())
	cmd.AddCommand(newBenchElectionCommand(a))
	must(cmd.RegisterFlagCompletionFunc("suite", cobra.FixedCompletions(bench.Suites(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func (k *benchCommand) addFlags(f *pflag.FlagSet) {
	c := &k.config
	f.IntVar(&k.shape.Connections, "connections", 16, "connections, each with a session")
	f.IntVar(&k.shape.Outstanding, "outstanding", 16, "requests in flight per connection")
	f.StringVar(&k.suite, "suite", "", "quick or full: run a fixed set of shapes")
	f.IntVar(&c.ValueBytes, "size", 100, "`BYTES` of each value")
	f.DurationVar(&c.Duration, "duration", 5*time.Second, "how long to measure each row")
	f.Int64Var(&c.Count, "count", 0, "operations per row, instead of --duration")
	f.DurationVar(&c.Warmup, "warmup", time.Second, "run each row for this long before it is measured")
	f.IntVar(&c.Keys, "keys", 1000, "nodes that set, get, exists and mixed choose from")
	f.IntVar(&c.Children, "children", 10, "children of the node that list lists")
	f.IntVar(&c.ReadPercent, "reads", 90, "`PERCENT` of reads in mixed")
	f.IntVar(&c.Watchers, "watchers", 0, "watchers of watch, spread over the connections (default one per connection)")
	f.Float64Var(&c.Rate, "rate", 0, "operations per second that are due in each row (open loop); 0 = closed loop")
	f.IntVar(&c.Repeat, "repeat", 1, "measure all rows this often and report medians and spread")
	f.StringVar(&c.Label, "label", "", "name of this run in reports")
	f.StringVar(&c.ProbeDir, "probe-dir", ".", "`DIR` where the probe writes; choose the disk of the server's data")
	f.StringVar(&k.target, "target", "", "measure ZooKeeper instead, for comparison: `zk://HOST:PORT,...`, all servers of an ensemble")
	f.IntSliceVar(&k.serverPIDs, "server-pid", nil, "`PID,...` of the --target's processes on this machine, to read their CPU time")
	f.StringVar(&k.versus, "versus", "", "measure each row on this one, too, in turn: `zk://HOST:PORT,...`")
	f.IntSliceVar(&k.versusPIDs, "versus-pid", nil, "`PID,...` of the --versus' processes on this machine, to read their CPU time")
	f.StringVar(&k.jsonFile, "json", "", "write the report as JSON to `FILE`")
	f.StringVar(&k.htmlFile, "html", "", "write the report as a page with plots to `FILE`")
	f.StringVar(&k.compareFile, "compare", "", "print ratios to an earlier report, the JSON `FILE` of another run")
}

// prepare judges flags and arguments, before anything is sent.
func (k *benchCommand) prepare(flags *pflag.FlagSet, workloads []string) error {
	if k.suite == "" && len(workloads) == 0 {
		k.suite = "quick"
	}
	switch {
	case k.suite != "" && !slices.Contains(bench.Suites(), k.suite):
		return usagef("--suite %q: want quick or full", k.suite)
	case k.suite != "" && (flags.Changed("connections") || flags.Changed("outstanding")):
		return usagef("--connections and --outstanding: they need a WORKLOAD, and no --suite")
	case k.target != "" && zkServers(k.target) == nil:
		return usagef("--target %q: want %sHOST:PORT,...", k.target, zkScheme)
	case k.versus != "" && zkServers(k.versus) == nil:
		return usagef("--versus %q: want %sHOST:PORT,...", k.versus, zkScheme)
	case k.versus != "" && k.compareFile != "":
		return usagef("--versus and --compare: one of them")
	case k.versusPIDs != nil && k.versus == "":
		return usagef("--versus-pid: it needs --versus")
	case k.serverPIDs != nil && k.target == "":
		return usagef("--server-pid: a Tenure server tells by itself")
	case k.config.Repeat < 1 || k.config.Repeat > 1000:
		return usagef("--repeat %d: must be from 1 to 1000", k.config.Repeat)
	}
	if k.suite != "" && len(workloads) == 0 {
		workloads = bench.SuiteWorkloads()
	}
	if k.suite != "" {
		k.config.Rows = bench.SuiteShapes(k.suite, workloads)
	}
	for _, name := range workloads {
		if k.suite == "" {
			k.config.Rows = append(k.config.Rows, bench.Shape{Workload: name, Connections: k.shape.Connections, Outstanding: k.shape.Outstanding})
		}
	}
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "auth" { // secret
			k.config.Flags = append(k.config.Flags, "--"+f.Name+"="+f.Value.String())
		}
	})
	k.config.Flags = append(k.config.Flags, workloads...)
	if err := k.config.Validate(); err != nil {
		return usagef("bench: %v", err)
	}
	if k.compareFile == "" {
		return nil
	}
	data, err := readFileMax(k.compareFile, reportMax)
	if err != nil {
		return err
	}
	if k.earlier, err = bench.ReadReport(strings.NewReader(string(data))); err != nil {
		return usagef("--compare %s: %v", k.compareFile, err)
	}
	return nil
}

// chooseTarget sets what is measured and returns its address.
func (k *benchCommand) chooseTarget(ctx context.Context) (string, error) {
	if k.versus != "" {
		k.config.Versus = &bench.ZooKeeper{Addrs: zkServers(k.versus), PIDs: k.versusPIDs}
	}
	if k.target != "" {
		k.config.Target = &bench.ZooKeeper{Addrs: zkServers(k.target), PIDs: k.serverPIDs}
		return strings.TrimPrefix(k.target, zkScheme), nil
	}
	servers, err := k.app.tenureServers("bench")
	if err != nil {
		return "", err
	}
	o, err := k.app.options(servers)
	if err != nil {
		return "", err
	}
	// A session first, so that a server that is not there is told as with other verbs.
	c, err := k.app.connect(ctx, servers)
	if err != nil {
		return "", err
	}
	_ = c.tree.Close() // it was only a question
	k.config.Target = &bench.Tenure{Label: k.app.targetName(ctx, servers), Options: o, Stale: k.app.stale,
		ReadUsage: func(ctx context.Context) (bench.Usage, bool) { return k.app.usageOf(ctx, servers) }}
	return where(servers), nil
}

// zkServers are the addresses in a list zk://HOST:PORT,..., nil if it is none.
func zkServers(list string) []string {
	list, ok := strings.CutPrefix(list, zkScheme)
	servers := strings.Split(list, ",")
	for _, s := range servers {
		if _, _, err := net.SplitHostPort(s); err != nil || !ok {
			return nil
		}
	}
	return servers
}

func (k *benchCommand) run(ctx context.Context) error {
	if k.app.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.app.timeout)
		defer cancel()
	}
	address, err := k.chooseTarget(ctx)
	if err != nil {
		return err
	}
	if k.app.stderrIsTerminal {
		k.config.Progress = func(p bench.Progress) { fmt.Fprint(k.app.stderr, progressLine(p)) }
	}
	report, err := bench.Execute(ctx, k.config)
	if k.app.stderrIsTerminal {
		fmt.Fprint(k.app.stderr, clearLine)
	}
	var local *fs.PathError // the probe's files
	if err != nil && ctx.Err() == nil && !errors.As(err, &local) {
		err = &requestError{address, err}
	}
	if report == nil || len(report.Rows) == 0 {
		return err
	}
	return errors.Join(err, k.write(report))
}

// clearLine removes what a terminal's line shows.
const clearLine = "\r\x1b[K"

// progressLine is how a row goes, in place of the line before.
func progressLine(p bench.Progress) string {
	if p.What != "measure" {
		return fmt.Sprintf("%s%v: %s", clearLine, p.Shape, p.What)
	}
	left := ""
	if p.Left > 0 {
		left = fmt.Sprintf(", %d s left", (p.Left+time.Second/2)/time.Second)
	}
	return fmt.Sprintf("%s%v: %.0f ops/s, p50 %.0f us, p99 %.0f us, errors %d%s",
		clearLine, p.Shape, p.Rate, p.P50Us, p.P99Us, p.Errors, left)
}

// write puts the report where the flags say.
func (k *benchCommand) write(r *bench.Report) error {
	var err error
	if k.app.output == outputJSON {
		err = r.WriteJSON(k.app.out)
	} else {
		err = r.WriteTable(k.app.out)
		if err == nil && k.earlier != nil {
			err = r.WriteComparison(k.app.out, k.earlier)
		}
	}
	return errors.Join(err,
		writeReport(k.jsonFile, r.WriteJSON),
		writeReport(k.htmlFile, func(w io.Writer) error { return r.WriteHTML(w, cmp.Or(k.earlier, r.Versus)) }))
}

// writeReport writes a file unless name is "".
func writeReport(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// targetName says what is measured.
func (a *app) targetName(ctx context.Context, servers []endpoint) string {
	name := "tenure at " + where(servers)
	if version := a.serverVersion(ctx, servers[0]); version != "" {
		name += ", version " + version
	}
	return name
}

// serverVersion is a server's version and that of its Go, "" if it does not tell.
func (a *app) serverVersion(ctx context.Context, server endpoint) string {
	var build struct{ Version, Go string }
	text, err := a.shortAnswer(ctx, server, "/version")
	if err != nil || json.Unmarshal([]byte(text), &build) != nil {
		return ""
	}
	return oneLine(build.Version) + ", " + oneLine(build.Go)
}

// usageOf is what the processes of all servers have used.
func (a *app) usageOf(ctx context.Context, servers []endpoint) (sum bench.Usage, ok bool) {
	for _, server := range servers {
		u, ok := a.serverUsage(ctx, server)
		if !ok {
			return bench.Usage{}, false
		}
		sum = sum.Plus(u)
	}
	return sum, true
}

// serverUsage reads what a server's process has used from its metrics.
func (a *app) serverUsage(ctx context.Context, server endpoint) (u bench.Usage, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, a.limit())
	defer cancel()
	response, err := a.httpGet(ctx, server, "/metrics", "")
	if err != nil {
		return u, false
	}
	defer response.Body.Close()
	found := 0
	lines := bufio.NewScanner(io.LimitReader(response.Body, 16<<20))
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil:
		case name == "process_cpu_seconds_total":
			u.CPUSeconds = value
			found++
		case name == "process_resident_memory_bytes":
			u.ResidentBytes = value
			found++
		}
	}
	return u, found == 2
}
