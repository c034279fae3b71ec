package main

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// app is one run of the tool: its streams and the flags that all verbs share. It is
// used by the goroutine that called run.
type app struct {
	stdin           io.Reader
	stdinIsTerminal bool
	stdout          io.Writer
	out             *bufio.Writer // writes to stdout; whoever waits flushes it first
	outIsTerminal   bool

	stderr           io.Writer
	stderrIsTerminal bool

	output         string // table, json or raw
	endpoints      []string
	timeout        time.Duration // of the whole command, 0 = none
	sessionTimeout time.Duration
	stale          bool
	auth           []string // secret
	tokenFile      string
	cacert, cert   string
	key            string
	insecureTLS    bool
}

const rootLong = `tenure reads, changes and watches the tree of a Tenure server.

Paths are absolute: /app/config. Data that is not given as an argument comes from
@FILE or, as -, from standard input. Errors are one line on standard error; what the
exit codes mean is in 'tenure help exit-codes'.

Environment:
  TENURE_ENDPOINTS   servers to use, comma separated (flag --endpoint)
  TENURE_AUTH        identities to present, one SCHEME:SECRET per line (flag --auth)
  TENURE_TOKEN_FILE  file with the server's admin token (flag --token-file)

A server behind TLS is wss://HOST:PORT. A path behind the port makes it the root of
all paths: ws://127.0.0.1:2180/app.

zk://HOST:PORT,HOST:PORT/PATH is a ZooKeeper: all commands of the tree work on it, in TLS
if a TLS flag is given. Without --stale a command first waits (sync) until the member has
what was committed before.`

// newRootCommand builds the whole command line. A new verb is one more line here.
func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "tenure",
		Short:         "Command line tool of the Tenure coordination service",
		Long:          rootLong,
		SilenceErrors: true, // run reports them
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; 'tenure --help' lists them", args[0])
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.checkFlags() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see '%s --help'", err, cmd.CommandPath())
	})
	a.addFlags(root)
	root.AddCommand(
		newListCommand(a),
		newTreeCommand(a),
		newGetCommand(a),
		newSetCommand(a),
		newCreateCommand(a),
		newRemoveCommand(a),
		newStatCommand(a),
		newGetACLCommand(a),
		newSetACLCommand(a),
		newWatchCommand(a),
		newTxnCommand(a),
		newSyncCommand(a),
		newExportCommand(a),
		newImportCommand(a),
		newSessionsCommand(a),
		newStatusCommand(a),
		newMemberCommand(a),
		newSnapshotCommand(a),
		newBenchCommand(a),
		newElectCommand(a),
		newLockCommand(a),
		newLeaseCommand(a),
		newFloorCommand(a),
		newJoinCommand(a),
		newMembersCommand(a),
		newConfigCommand(a),
		newQueueCommand(a),
		newCounterCommand(a),
		newBarrierCommand(a),
		newVersionCommand(a),
		newExitCodesTopic(),
	)
	return root
}

// addFlags declares the flags that all verbs share.
func (a *app) addFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVarP(&a.output, "output", "o", outputTable, "how to print: table, json (one object per line) or raw (bytes as they are)")
	f.StringSliceVar(&a.endpoints, "endpoint", nil, "server `HOST:PORT`; repeat it or separate by commas (default 127.0.0.1:2180)")
	f.DurationVar(&a.timeout, "timeout", 0, "limit for the whole command; without it connecting may take 5s and each request 10s")
	f.DurationVar(&a.sessionTimeout, "session-timeout", 10*time.Second, "session timeout to ask for")
	f.BoolVar(&a.stale, "stale", false, "let any member answer reads from what it has")
	f.StringArrayVar(&a.auth, "auth", nil, "identity to present, `SCHEME:SECRET` as in digest:user:password; others may see it in the list of processes, so prefer TENURE_AUTH")
	f.StringVar(&a.tokenFile, "token-file", "", "`FILE` with the server's admin token")
	f.StringVar(&a.cacert, "cacert", "", "`FILE` with the CA certificates to trust (PEM); turns TLS on")
	f.StringVar(&a.cert, "cert", "", "`FILE` with the client certificate (PEM); turns TLS on")
	f.StringVar(&a.key, "key", "", "`FILE` with the key of --cert (PEM)")
	f.BoolVar(&a.insecureTLS, "insecure-skip-verify", false, "do not verify the server's certificate; turns TLS on")
	must(root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{outputTable, outputJSON, outputRaw}, cobra.ShellCompDirectiveNoFileComp)))
}

// checkFlags judges the shared flags before any verb runs.
func (a *app) checkFlags() error {
	switch a.output {
	case outputTable, outputJSON, outputRaw:
	default:
		return usagef("--output %q: want table, json or raw", a.output)
	}
	if a.timeout < 0 {
		return usagef("--timeout %v: must not be negative", a.timeout)
	}
	if a.sessionTimeout <= 0 {
		return usagef("--session-timeout %v: must be above 0", a.sessionTimeout)
	}
	if (a.cert == "") != (a.key == "") {
		return usagef("--cert and --key: one needs the other")
	}
	if a.insecureTLS {
		a.note("warning: --insecure-skip-verify: whoever answers at the address is believed to be the server")
	}
	return nil
}

// must panics on an error that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("tenure: %v", err))
	}
}

// args returns an argument check for between low and high arguments, which want names
// to the user.
func args(want string, low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usagef("%s: want %s, got %d argument(s); see '%s --help'",
				cmd.Name(), want, len(args), cmd.CommandPath())
		}
		return nil
	}
}
