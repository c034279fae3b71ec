package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
)

// joinCommand is one run of "join".
type joinCommand struct {
	app      *app
	id, data string
	argv     []string
}

func newJoinCommand(a *app) *cobra.Command {
	j := &joinCommand{app: a}
	cmd := &cobra.Command{
		Use:   "join GROUP [-- CMD [ARG...]]",
		Short: "Be a member of a group",
		Long: `Be a member of GROUP, a path or a name in ` + groupsDir + `, while CMD runs, whose exit
code is passed on, or until an interrupt (exit code 130). The member's id is printed when it
is one. After the end of its session it joins again by itself: CMD runs on meanwhile.
While another session has the id it waits, no longer than --timeout if that is given.

CMD runs in a process group of its own, which gets SIGTERM at an interrupt of this command and
SIGKILL at a second one. If this command is killed the kernel kills CMD with it (on Linux).
TENURE_GROUP has the path of GROUP, TENURE_MEMBER the id.

  tenure join workers --id w1 --data 10.0.0.1:80 -- ./worker
  tenure members workers --watch`,
		ValidArgsFunction: a.completeRecipe(groupsDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			own, argv := splitAtDash(cmd, args)
			j.argv = argv
			if len(own) != 1 || argv != nil && len(argv) == 0 {
				return usagef("join: want GROUP [-- CMD], got %d name(s); see 'tenure join --help'", len(own))
			}
			path, err := recipePath(groupsDir, own[0])
			if err == nil && argv != nil {
				err = findCommand(argv)
			}
			if err != nil {
				return err
			}
			return a.withStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
				return j.run(ctx, s, path)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&j.id, "id", "", "the member's id (default host-pid-random)")
	f.StringVar(&j.data, "data", "", "what others are shown with it")
	return cmd
}

// run joins, holds on and leaves.
func (j *joinCommand) run(ctx context.Context, s recipes.Store, path string) error {
	group, err := recipes.NewGroup(s, path, recipes.GroupOptions{})
	if err != nil {
		return invalid(err)
	}
	m, err := j.join(ctx, group, path)
	if err != nil {
		return err
	}
	fmt.Fprintln(j.app.out, j.app.text(m.ID()))
	if err = j.app.out.Flush(); err == nil {
		err = j.stay(ctx, m, path)
	}
	if leaveErr := m.Leave(context.WithoutCancel(ctx)); leaveErr != nil {
		j.app.note("%s: leave: %v", path, leaveErr)
	}
	return err
}

func (j *joinCommand) join(ctx context.Context, group *recipes.Group, path string) (*recipes.Membership, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if j.app.timeout > 0 {
		bounded, cancel = context.WithTimeout(ctx, j.app.timeout)
	}
	defer cancel()
	m, err := group.Join(bounded, j.id, []byte(j.data))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && bounded.Err() != nil:
		return nil, &codeError{exitConflict, fmt.Errorf("%s: not a member within %v: %w", path, j.app.timeout, err)}
	}
	return m, invalid(err)
}

// stay returns when the membership is to end.
func (j *joinCommand) stay(ctx context.Context, m *recipes.Membership, path string) error {
	if j.argv == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	c, err := j.app.startProcess(processRun{
		argv: j.argv, stdin: j.app.commandInput(), env: []string{"TENURE_GROUP=" + path, "TENURE_MEMBER=" + m.ID()},
	})
	if err != nil {
		return err
	}
	_ = c.attend(ctx, nil, nil) // without a tenure it cannot be lost
	return c.outcome()
}
