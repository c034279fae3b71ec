// Tenured is the server of Tenure.
//
// Usage:
//
//	tenured [flags]                                    serve
//	tenured check   --data-dir DIR                     verify a stopped server's data
//	tenured restore --data-dir DIR --from FILE         make a data directory from a snapshot
//	tenured config  check [flags] | print-default      show the configuration
//	tenured version
//
// Exit codes: 0 done, 1 failed while running, 2 wrong usage or configuration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/tenure-dev/tenure/server"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default is back, so that a second one ends the
	// process at once if the orderly stop hangs.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without its process: ctx ends on the first signal. Results go to stdout,
// log and errors to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	verb := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	var err error
	switch verb {
	case "":
		err = serve(ctx, args, stdout, stderr)
	case "check":
		err = check(args, stdout, stderr)
	case "restore":
		err = restore(args, stdout, stderr)
	case "config":
		err = config(args, stdout)
	case "version":
		err = version(args, stdout)
	case "help":
		err = flag.ErrHelp
	default:
		err = usagef("there is no command %q; there are check, restore, config and version, and without one tenured serves", verb)
	}
	var u *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		help(stdout)
		return exitOK
	case errors.As(err, &u):
		fmt.Fprintf(stderr, "tenured: %v\n", err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "tenured: %v\n", err)
		return exitError
	}
}

// usageError is a fault of the command line or the configuration.
type usageError struct{ err error }

func (u *usageError) Error() string { return u.err.Error() }
func (u *usageError) Unwrap() error { return u.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// flags are the settings and the few flags that are none.
type flags struct {
	set      *flag.FlagSet
	settings server.ConfigFlags
	file     string // --config
	zooCfg   string // --zoo-cfg
	hints    bool
	from     string // --from, of restore
}

func newFlags() *flags {
	f := &flags{set: flag.NewFlagSet("tenured", flag.ContinueOnError), settings: server.ConfigFlags{}}
	f.set.SetOutput(io.Discard)
	f.set.StringVar(&f.file, "config", os.Getenv("TENURE_CONFIG"), "YAML file with settings.")
	f.set.StringVar(&f.zooCfg, "zoo-cfg", os.Getenv("TENURE_ZOO_CFG"), "ZooKeeper's zoo.cfg to take settings from; --config and all else is stronger.")
	f.set.BoolVar(&f.hints, "hints", false, "Print what to try next, also if standard output is no terminal.")
	f.settings.Register(f.set)
	return f
}

// load parses args, which may hold no other words, and merges all sources.
func (f *flags) load(args []string) (server.LoadedConfig, error) {
	if err := f.parse(args); err != nil {
		return server.LoadedConfig{}, err
	}
	l, err := server.LoadConfig(server.Sources{Flags: f.settings, Environ: os.Environ(), File: f.file, ZooCfg: f.zooCfg})
	if err != nil {
		return l, &usageError{err}
	}
	return l, nil
}

func (f *flags) parse(args []string) error {
	err := f.set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		// The only way that package flag names an unknown flag.
		if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
			return usagef("there is no flag --%s%s", name, server.SuggestSetting(name))
		}
		return &usageError{err}
	case f.set.NArg() > 0:
		return usagef("%q is not a flag; flags begin with --, a boolean takes its value as --name=false", f.set.Arg(0))
	}
	return nil
}

// help prints what there is.
func help(w io.Writer) {
	fmt.Fprint(w, `Tenured is the server of Tenure, a coordination service.

Usage:
  tenured [flags]                              serve
  tenured check   --data-dir DIR               verify a stopped server's data
  tenured restore --data-dir DIR --from FILE   make a data directory from a snapshot
  tenured config  check [flags]                print the configuration in effect
  tenured config  print-default                print a file that explains every setting
  tenured version

A flag --max-sessions is also the environment variable TENURE_MAX_SESSIONS and the
key max-sessions of the file; the flag is strongest, then the environment, then
--config, then --zoo-cfg.

Flags:
`)
	var names []string
	f := newFlags()
	f.set.VisitAll(func(fl *flag.Flag) { names = append(names, fl.Name) })
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "  --%-27s %s\n", name, f.set.Lookup(name).Usage)
	}
	fmt.Fprint(w, "\nExit codes: 0 done, 1 failed while running, 2 wrong usage or configuration.\n")
}

func config(args []string, stdout io.Writer) error {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	switch verb {
	case "check":
		l, err := newFlags().load(args)
		for _, z := range l.ZooCfg {
			fmt.Fprintf(stdout, "# %s\n", z)
		}
		if err != nil {
			return err
		}
		for _, warning := range l.Warnings {
			fmt.Fprintf(stdout, "# %s\n", warning)
		}
		_, err = l.WriteTo(stdout)
		return err
	case "print-default":
		if len(args) > 0 {
			return usagef("config print-default takes no %q", args[0])
		}
		return server.WriteDefaultConfig(stdout)
	}
	return usagef("config takes check or print-default, not %q", verb)
}

func version(args []string, stdout io.Writer) error {
	if len(args) > 0 {
		return usagef("version takes no %q", args[0])
	}
	b := server.Build()
	_, err := fmt.Fprintf(stdout, "tenured %s commit=%s %s protocols=%s\n", b.Version, b.Commit, b.Go, strings.Join(b.Protocol, ","))
	return err
}
