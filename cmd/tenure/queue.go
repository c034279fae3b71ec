package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
)

func newQueueCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Put items into a queue, and work on them",
		Long: `Put items into a queue, and run a command for each. An item that was taken and not finished
is given out again: a command may run more than once for one. NAME is a path, or a name in
` + queuesDir + `.

  tenure queue put mails 'to: alice'
  tenure queue take mails -- ./send-mail`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; 'tenure queue --help' lists them", "queue "+args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newQueuePut(a), newQueueTake(a))
	return cmd
}

func newQueuePut(a *app) *cobra.Command {
	var id string
	var priority uint16
	cmd := &cobra.Command{
		Use:   "put NAME VALUE",
		Short: "Add an item",
		Long: `Add an item and print its id. VALUE is taken as it is; @FILE is the content of FILE, - is
standard input. With --id nothing is added if an item with that id is in the queue.`,
		Args:              args("NAME VALUE", 2, 2),
		ValidArgsFunction: a.completeRecipe(queuesDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := recipePath(queuesDir, args[0])
			if err != nil {
				return err
			}
			body, err := a.value(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			options := []recipes.PutOption{recipes.Priority(priority)}
			if id != "" {
				options = append(options, recipes.ID(id))
			}
			return a.askStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
				q, err := recipes.NewQueue(s, path, recipes.QueueOptions{})
				if err != nil {
					return invalid(err)
				}
				id, err := q.Put(ctx, body, options...)
				if err == nil {
					_, err = fmt.Fprintln(a.out, a.text(id))
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the item's id (default random)")
	cmd.Flags().Uint16Var(&priority, "priority", 100, "lower goes first")
	return cmd
}

// takeCommand is one run of "queue take".
type takeCommand struct {
	app     *app
	options recipes.QueueOptions
	loop    bool
	delay   time.Duration
	argv    []string
}

func newQueueTake(a *app) *cobra.Command {
	k := &takeCommand{app: a}
	cmd := &cobra.Command{
		Use:   "take NAME -- CMD [ARG...]",
		Short: "Run a command for an item",
		Long: `Wait for an item, no longer than --timeout if that is given, and run CMD with the item as its
standard input. If CMD exits with 0 the item is deleted, else given back after --delay, and
CMD's exit code passed on. If it was asked to stop the item is always given back. --loop goes on with the next item, whatever the exit code, until
an interrupt or until --timeout passes without an item.

` + commandHelp + `
TENURE_ITEM has the item's id, TENURE_ATTEMPT how often it was given out, TENURE_PATH the
queue's path.`,
		ValidArgsFunction: a.completeRecipe(queuesDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			own, argv := splitAtDash(cmd, args)
			k.argv = argv
			if len(own) != 1 || len(argv) == 0 || k.options.Redeliver < 0 || k.delay < 0 {
				return usagef("queue take: want NAME -- CMD, and nothing negative; see 'tenure queue take --help'")
			}
			path, err := recipePath(queuesDir, own[0])
			if err == nil {
				err = findCommand(argv)
			}
			if err != nil {
				return err
			}
			return a.withStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
				return k.run(ctx, s, path)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&k.loop, "loop", false, "go on with the next item")
	f.DurationVar(&k.delay, "delay", 0, "how long an item that failed is not given out again")
	f.IntVar(&k.options.Redeliver, "redeliver", 0, "how often an item is given out before it is put aside, 0 = no bound")
	return cmd
}

func (k *takeCommand) run(ctx context.Context, s recipes.Store, path string) error {
	q, err := recipes.NewQueue(s, path, k.options)
	if err != nil {
		return invalid(err)
	}
	for {
		var item *recipes.Item
		_, err := k.app.winning(ctx, s, path, func(ctx context.Context) (_ *recipes.Tenure, err error) {
			item, err = q.Take(ctx)
			return nil, err
		})
		if err != nil {
			return err
		}
		outcome, lost := k.work(ctx, item, path)
		switch {
		case ctx.Err() != nil && outcome == nil:
			return ctx.Err() // the item was given back
		case ctx.Err() != nil || !k.loop && lost == nil:
			return outcome
		case lost != nil && !k.loop:
			return lostError(path, lost)
		}
		if outcome != nil {
			k.app.note("%s: item %s: %v", path, item.ID, outcome)
			wait(ctx, restartPause)
		}
	}
}

// work runs the command for one item and gives the item its end.
func (k *takeCommand) work(ctx context.Context, item *recipes.Item, path string) (outcome, lost error) {
	r := processRun{
		what: path, argv: k.argv, stdin: bytes.NewReader(item.Body),
		env: []string{"TENURE_ITEM=" + item.ID, fmt.Sprintf("TENURE_ATTEMPT=%d", item.Attempt)},
	}
	return k.app.attended(ctx, item.Tenure, r, func(ctx context.Context, done bool) error {
		if done {
			return item.Ack(ctx)
		}
		return item.Nack(ctx, k.delay)
	})
}
