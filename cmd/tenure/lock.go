package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// slotsNode is the child of a semaphore that is nobody's place.
const slotsNode = "slots"

// lockCommand is one run of "lock".
type lockCommand struct {
	app              *app
	id               string
	try, read, write bool
	slots            int
	names, paths     []string
	argv             []string
}

func newLockCommand(a *app) *cobra.Command {
	l := &lockCommand{app: a}
	cmd := &cobra.Command{
		Use:   "lock NAME... -- CMD [ARG...]",
		Short: "Run a command while holding a lock",
		Long: `Take the lock NAME, run CMD, release the lock and exit with CMD's exit code. NAME is a
path, or a name in ` + locksDir + `. Who asked first is served first.

--try exits with 3 if somebody has the lock or waits for it, --timeout D if it was not free
within D. On ZooKeeper a new lock, and one whose holder vanished, is free after 0.4 of the
session timeout: also --try waits for that. If the lock is lost CMD is stopped, and the exit code is 7.

Several NAMEs are taken as one, all or none, in an order that cannot deadlock.
--read and --write take a lock that many readers or one writer have, in ` + rwLocksDir + `.
--slots N takes one of N slots of a semaphore, in ` + semaphoresDir + `.
A path is always one of these kinds; do not use it as another.

` + commandHelp + `
TENURE_LOCK has the NAMEs, separated by spaces, TENURE_PATH the path; with several,
TENURE_FENCING_TOKENS has a line PATH=TOKEN for each.

  tenure lock backup -- ./backup.sh
  tenure lock --try nightly -- ./report.sh
  tenure lock --slots 3 uploads -- rsync -a data/ host:data/
  tenure lock from to -- ./transfer.sh`,
		ValidArgsFunction: a.completeRecipe(locksDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.names, l.argv = splitAtDash(cmd, args)
			if err := l.prepare(); err != nil {
				return err
			}
			return a.withStore(cmd.Context(), l.run)
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.id, "id", "", "who this is, for people (default host-pid-random)")
	f.BoolVar(&l.try, "try", false, "do not wait for others")
	f.BoolVar(&l.read, "read", false, "share the lock with other readers")
	f.BoolVar(&l.write, "write", false, "exclude readers and writers")
	f.IntVar(&l.slots, "slots", 0, "take one of `N` slots")
	return cmd
}

// prepare judges the command line.
func (l *lockCommand) prepare() error {
	dir, kinds := locksDir, 0
	if l.read || l.write {
		dir = rwLocksDir
	}
	if l.slots != 0 {
		dir = semaphoresDir
	}
	for _, is := range []bool{l.read, l.write, l.slots != 0} {
		if is {
			kinds++
		}
	}
	several := len(l.names) > 1
	switch {
	case len(l.names) == 0 || len(l.argv) == 0:
		return usagef("lock: want NAME... -- CMD; see 'tenure lock --help'")
	case kinds > 1:
		return usagef("lock: --read, --write and --slots: only one makes sense")
	case several && (kinds > 0 || l.try):
		return usagef("lock: %d names: --read, --write, --slots and --try take one", len(l.names))
	case l.slots < 0 || l.slots > recipes.SlotsMax:
		return usagef("lock: --slots %d: must be 1 to %d", l.slots, recipes.SlotsMax)
	}
	if err := findCommand(l.argv); err != nil {
		return err
	}
	var err error
	l.paths, err = recipePaths(dir, l.names)
	return err
}

// taking is how to take a lock, waiting or not.
type taking struct {
	wait func(ctx context.Context) (*recipes.Tenure, error)
	try  func(ctx context.Context) (*recipes.Tenure, bool, error)
}

// taking makes the recipe that the flags ask for.
func (l *lockCommand) taking(s recipes.Store) (taking, error) {
	o := recipes.Options{ID: l.id}
	switch {
	case l.slots > 0:
		m, err := recipes.NewSemaphore(s, l.paths[0], l.slots, o)
		return taking{
			wait: func(ctx context.Context) (*recipes.Tenure, error) { return m.Acquire(ctx, 1) },
			try:  func(ctx context.Context) (*recipes.Tenure, bool, error) { return m.TryAcquire(ctx, 1) },
		}, err
	case l.read || l.write:
		m, err := recipes.NewRWMutex(s, l.paths[0], o)
		if err != nil || l.write {
			return taking{m.Lock, m.TryLock}, err
		}
		return taking{m.RLock, m.TryRLock}, nil
	}
	var all []*recipes.Mutex
	for _, path := range l.paths {
		m, err := recipes.NewMutex(s, path, o)
		if err != nil {
			return taking{}, err
		}
		all = append(all, m)
	}
	if len(all) == 1 {
		return taking{all[0].Lock, all[0].TryLock}, nil
	}
	return taking{wait: func(ctx context.Context) (*recipes.Tenure, error) { return recipes.LockAll(ctx, all...) }}, nil
}

// run takes the lock and runs the command.
func (l *lockCommand) run(ctx context.Context, s recipes.Store) error {
	how, err := l.taking(s)
	if err != nil {
		return invalid(err)
	}
	what := strings.Join(l.paths, ", ")
	t, err := l.take(ctx, s, what, how)
	if err != nil {
		return err
	}
	r := processRun{what: what, argv: l.argv, stdin: l.app.commandInput(), env: []string{"TENURE_LOCK=" + strings.Join(l.names, " ")}}
	if len(l.paths) > 1 {
		r.env = append(r.env, "TENURE_FENCING_TOKENS="+tokenLines(t))
	}
	outcome, lost := l.app.underTenure(ctx, t, r)
	if lost != nil && ctx.Err() == nil {
		return lostError(what, lost)
	}
	return outcome
}

// take takes the lock. With --try it waits for nobody, but where nobody has the lock or
// asks for it, it waits until the one who had it last cannot believe to have it any more.
func (l *lockCommand) take(ctx context.Context, s recipes.Store, what string, how taking) (*recipes.Tenure, error) {
	if !l.try {
		return l.app.winning(ctx, s, what, how.wait)
	}
	bounded, cancel := context.WithTimeout(ctx, l.app.limit())
	defer cancel()
	others, err := inLine(bounded, s, l.paths[0])
	if err != nil {
		return nil, err
	}
	t, taken, err := how.try(bounded)
	if err != nil || taken {
		return t, err
	}
	if !others {
		t, err = how.wait(bounded)
		if err == nil || bounded.Err() == nil || ctx.Err() != nil {
			return t, err
		}
	}
	return nil, &codeError{exitConflict, fmt.Errorf("%s: held by another", what)}
}

// inLine reports whether anybody has the lock at path or asks for it.
func inLine(ctx context.Context, s recipes.Store, path string) (bool, error) {
	names, _, err := s.Children(ctx, path)
	if errors.Is(err, znode.NoNode) {
		return false, nil
	}
	return slices.ContainsFunc(names, func(name string) bool { return name != slotsNode }), err
}

// tokenLines is a line PATH=TOKEN for each lock, in the order of the paths.
func tokenLines(t *recipes.Tenure) string {
	var lines []string
	for path, token := range t.Tokens() {
		lines = append(lines, fmt.Sprintf("%s=%d", path, token))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
