package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/recipes"
)

// electionsMax bounds how many elections one command takes part in.
const electionsMax = 1000

// restartPause is the least time from one start of a command to the next.
const restartPause = time.Second

// electCommand is one run of "elect".
type electCommand struct {
	app                    *app
	id, data               string
	restart, once, observe bool
	count                  int
	argv                   []string
	several                bool // more than one election
}

func newElectCommand(a *app) *cobra.Command {
	e := &electCommand{app: a}
	cmd := &cobra.Command{
		Use:   "elect NAME... -- CMD [ARG...]",
		Short: "Run a command while leading an election",
		Long: `Take part in the election NAME and run CMD while leading it. NAME is a path, or a name in
` + electionsDir + `. Of all who run this for the same NAME one leads at a time, in the
order of asking. "elected, token N" and "lost: why" are told on standard error.

When CMD ends by itself the lead is released and CMD's exit code passed on; with --restart
it goes to the end of the line and on. When the lead is lost CMD is stopped, and it goes to
the end of the line; with --once it exits with 7. --timeout D exits with 3 when it had to
wait longer than D for the lead.

With several NAMEs each has a CMD of its own, which runs when that one is won, and all
share one session. It ends when all have, with the first exit code that is not 0.

` + commandHelp + `
TENURE_ELECTION has NAME, TENURE_PATH its path.

--observe prints instead who leads, a line for each change: the leader's id and token, how
many candidates there are, the zxid, and whether that is fresh or the last that was seen
before the connection broke. It ends after --count lines, or with --timeout.

  tenure elect scheduler -- ./scheduler --port 8080
  tenure elect shard-0 shard-1 shard-2 --restart -- ./worker
  tenure elect --observe scheduler
  tenure --endpoint zk://h1:2181,h2:2181/app elect /leaders/scheduler -- ./scheduler`,
		ValidArgsFunction: a.completeRecipe(electionsDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, argv := splitAtDash(cmd, args)
			e.argv = argv
			paths, err := e.prepare(names, cmd.ArgsLenAtDash() >= 0)
			if err != nil {
				return err
			}
			return a.withStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
				if e.observe {
					return e.print(ctx, s, paths[0])
				}
				return e.runAll(ctx, s, names, paths)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.id, "id", "", "who this is, for observers (default host-pid-random)")
	f.StringVar(&e.data, "data", "", "what observers are shown with it")
	f.BoolVar(&e.restart, "restart", false, "campaign again when CMD has ended")
	f.BoolVar(&e.once, "once", false, "exit when the lead is lost")
	f.BoolVar(&e.observe, "observe", false, "print who leads")
	f.IntVar(&e.count, "count", 0, "with --observe: end after so many lines, 0 = never")
	return cmd
}

// prepare judges the command line.
func (e *electCommand) prepare(names []string, dash bool) ([]string, error) {
	switch {
	case len(names) == 0:
		return nil, usagef("elect: want NAME... -- CMD, or --observe NAME; see 'tenure elect --help'")
	case e.observe && (dash || len(names) > 1):
		return nil, usagef("elect: --observe takes one NAME and no CMD")
	case !e.observe && len(e.argv) == 0:
		return nil, usagef("elect: want a command behind --, or --observe")
	case len(names) > electionsMax:
		return nil, usagef("elect: %d names, at most %d", len(names), electionsMax)
	case e.count < 0 || e.count > 0 && !e.observe:
		return nil, usagef("elect: --count %d: is for --observe and must not be negative", e.count)
	case e.restart && e.once:
		return nil, usagef("elect: --restart and --once: only one makes sense")
	}
	if !e.observe {
		if err := findCommand(e.argv); err != nil {
			return nil, err
		}
	}
	return recipePaths(electionsDir, names)
}

// runAll takes part in all elections until each has come to its end.
func (e *electCommand) runAll(ctx context.Context, s recipes.Store, names, paths []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.several = len(paths) > 1
	var all errgroup.Group
	for i, path := range paths {
		election, err := recipes.NewElection(s, path, recipes.ElectionOptions{Options: recipes.Options{ID: e.id, Data: []byte(e.data)}})
		if err != nil {
			cancel()
			return errors.Join(invalid(err), all.Wait())
		}
		all.Go(func() error {
			err := e.run(ctx, s, election, names[i], path)
			var child *childExit
			if err != nil && len(paths) > 1 && !errors.As(err, &child) && ctx.Err() == nil {
				e.app.note("%s: %v", path, err) // the others go on
			}
			return err
		})
	}
	return all.Wait()
}

// run takes part in one election.
func (e *electCommand) run(ctx context.Context, s recipes.Store, election *recipes.Election, name, path string) error {
	for {
		t, err := e.app.winning(ctx, s, path, election.Campaign)
		if err != nil {
			return err
		}
		e.app.note("%s: elected, token %d", path, t.Token())
		began := time.Now()
		r := processRun{what: path, argv: e.argv, env: []string{"TENURE_ELECTION=" + name}, several: e.several}
		outcome, lost := e.app.underTenure(ctx, t, r)
		switch {
		case ctx.Err() != nil:
			return outcome
		case lost != nil && e.once:
			return lostError(path, lost)
		case lost == nil && !e.restart:
			return outcome
		case lost == nil && outcome != nil:
			e.app.note("%s: %v", path, outcome)
		}
		wait(ctx, restartPause-time.Since(began))
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// viewLine is one view of an election in JSON.
type viewLine struct {
	Leader     *candidateLine  `json:"leader"` // null: nobody leads
	Candidates []candidateLine `json:"candidates"`
	Zxid       string          `json:"zxid"`
	Fresh      bool            `json:"fresh"`
}

// candidateLine is one candidate in JSON.
type candidateLine struct {
	ID    string `json:"id"`
	Token string `json:"token,omitempty"` // a string, which no reader rounds
	Node  string `json:"node"`
	dataFields
}

func candidateLineOf(c recipes.Candidate) candidateLine {
	l := candidateLine{ID: c.ID, Node: c.Node, dataFields: dataFieldsOf(c.Data)}
	if c.Token != 0 {
		l.Token = fmt.Sprint(uint64(c.Token))
	}
	return l
}

// print prints who leads the election until ctx ends or there were enough lines.
func (e *electCommand) print(ctx context.Context, s recipes.Store, path string) error {
	election, err := recipes.NewElection(s, path, recipes.ElectionOptions{})
	if err != nil {
		return invalid(err)
	}
	return printStream(ctx, e.app, e.count, election.Observe, func(v recipes.View) error {
		if e.app.output == outputJSON {
			l := viewLine{Candidates: []candidateLine{}, Zxid: formatZxid(v.Zxid), Fresh: v.Fresh}
			for _, c := range v.Candidates {
				l.Candidates = append(l.Candidates, candidateLineOf(c))
			}
			if v.Leader != nil {
				leader := candidateLineOf(*v.Leader)
				l.Leader = &leader
			}
			return e.app.printJSON(l)
		}
		leader := "nobody leads"
		if v.Leader != nil {
			leader = fmt.Sprintf("leader %s, token %d", e.app.text(v.Leader.ID), v.Leader.Token)
		}
		_, err := fmt.Fprintf(e.app.out, "%s, candidates %d, zxid %s, %s\n", leader, len(v.Candidates), formatZxid(v.Zxid), freshness(v.Fresh))
		return err
	})
}

// freshness is the word for Fresh.
func freshness(fresh bool) string {
	if fresh {
		return "fresh"
	}
	return "not fresh"
}
