package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// The directories in which bare names of recipes are.
const (
	electionsDir  = "/tenure/elections"
	locksDir      = "/tenure/locks"
	rwLocksDir    = "/tenure/rwlocks"
	semaphoresDir = "/tenure/semaphores"
	leasesDir     = "/tenure/leases"
	groupsDir     = "/tenure/groups"
	configsDir    = "/tenure/configs"
	queuesDir     = "/tenure/queues"
	countersDir   = "/tenure/counters"
	barriersDir   = "/tenure/barriers"
)

// retryPause is what a candidate waits after a failure that may pass.
const retryPause = 200 * time.Millisecond

// recipePath returns the path of a recipe: name itself if it begins with a slash, else
// name in dir.
func recipePath(dir, name string) (string, error) {
	if name == "" {
		return "", usagef("the name must not be empty")
	}
	if !strings.HasPrefix(name, znode.Root) {
		name = dir + "/" + name
	}
	path, err := parsePath(name)
	if err == nil && path == znode.Root {
		return "", usagef("path /: a recipe needs a directory of its own")
	}
	return path, err
}

// recipePaths is recipePath for several names.
func recipePaths(dir string, names []string) ([]string, error) {
	paths := make([]string, len(names))
	for i, name := range names {
		var err error
		if paths[i], err = recipePath(dir, name); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// completeRecipe completes the first argument as a path where it begins as one.
func (a *app) completeRecipe(dir string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if strings.HasPrefix(toComplete, znode.Root) || len(args) > 0 {
			return a.completePath(cmd, args, toComplete)
		}
		paths, directive := a.completePath(cmd, args, dir+"/"+toComplete)
		names := make([]cobra.Completion, len(paths))
		for i, path := range paths {
			names[i] = strings.TrimPrefix(path, dir+"/")
		}
		return names, directive
	}
}

// withStore opens a session for recipes, calls verb, and closes it, which ends all that
// is held. It does not bound verb in time.
func (a *app) withStore(ctx context.Context, verb func(ctx context.Context, s recipes.Store) error) error {
	store, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	err = verb(ctx, store)
	if closeErr := store.Close(); err == nil && closeErr != nil && ctx.Err() == nil {
		err = fmt.Errorf("close the session: %w", closeErr)
	}
	return a.recipeError(err)
}

// askStore is withStore for a verb that waits for answers alone: --timeout, or what a
// request may take, bounds it.
func (a *app) askStore(ctx context.Context, verb func(ctx context.Context, s recipes.Store) error) error {
	return a.withStore(ctx, func(ctx context.Context, s recipes.Store) error {
		bounded, cancel := context.WithTimeout(ctx, a.limit())
		defer cancel()
		err := verb(bounded, s)
		if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
			return &codeError{exitUnreachable, fmt.Errorf("no answer within %v: %w", a.limit(), err)}
		}
		return err
	})
}

// recipeError says which server a recipe's error is of.
func (a *app) recipeError(err error) error {
	switch err.(type) {
	case nil, *usageError, *codeError, *childExit, *requestError:
		return err
	}
	servers, unknown := a.servers()
	if unknown != nil || errors.Is(err, context.Canceled) {
		return err
	}
	return &requestError{where(servers), err}
}

// invalid is a usage error if a recipe refuses an option before anything is sent.
func invalid(err error) error {
	if errors.Is(err, recipes.ErrInvalid) {
		return &usageError{strings.TrimPrefix(err.Error(), recipes.ErrInvalid.Error()+": ")}
	}
	return err
}

// winning waits until take holds something, over the ends of sessions and all that passes
// with time. --timeout bounds it: then the error says that it is not held.
func (a *app) winning(ctx context.Context, s recipes.Store, what string, take func(context.Context) (*recipes.Tenure, error)) (*recipes.Tenure, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if a.timeout > 0 {
		bounded, cancel = context.WithTimeout(ctx, a.timeout)
	}
	defer cancel()
	for {
		t, err := take(bounded)
		switch {
		case err == nil:
			return t, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case bounded.Err() != nil && s.Session().State() != recipes.Connected:
			return nil, &codeError{exitUnreachable, fmt.Errorf("%s: not held within %v: there is no connection", what, a.timeout)}
		case bounded.Err() != nil:
			return nil, &codeError{exitConflict, fmt.Errorf("%s: not held within %v", what, a.timeout)}
		case !passing(err):
			return nil, err
		}
		wait(bounded, retryPause)
	}
}

// passing reports whether trying again may help.
func passing(err error) bool {
	for _, e := range []error{recipes.ErrUnavailable, recipes.ErrUncertain, recipes.ErrSessionExpired,
		recipes.ErrLost, znode.ConnectionLoss, znode.OperationTimeout, znode.RequestTimeout,
		znode.ThrottledOp, znode.SessionMoved, znode.SessionExpired} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// underTenure runs the command while t is held, and releases it when the command has been
// waited for. outcome is how the command ended; lost is why it was stopped, if it did not
// end by itself or by an interrupt.
func (a *app) underTenure(ctx context.Context, t *recipes.Tenure, r processRun) (outcome, lost error) {
	return a.attended(ctx, t, r, func(ctx context.Context, _ bool) error {
		if err := t.Release(ctx); err != nil {
			a.note("%s: %v", r.what, err)
		}
		return nil
	})
}

// attended is underTenure where finish ends what is held: done says that the command did
// all it wanted. Its error is the outcome if the command had none.
func (a *app) attended(ctx context.Context, t *recipes.Tenure, r processRun, finish func(ctx context.Context, done bool) error) (outcome, lost error) {
	r.env = append(r.env, "TENURE_PATH="+t.Name(), fmt.Sprintf("TENURE_FENCING_TOKEN=%d", t.Token()))
	p, err := a.startProcess(r)
	if err == nil {
		lost = p.attend(ctx, t, func(why error) { a.note("%s: lost: %s", r.what, lostWhy(why)) })
		err = p.outcome()
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestLimit)
	defer cancel()
	done := err == nil && lost == nil && ctx.Err() == nil
	if finishErr := finish(ending, done); err == nil {
		err = finishErr
	}
	return err, lost
}

// lostWhy is the reason alone.
func lostWhy(why error) string {
	if lost, ok := errors.AsType[*recipes.LostError](why); ok {
		why = lost.Why
	}
	if errors.Is(why, recipes.ErrGrace) {
		return "no renewal was answered and the deadline is near"
	}
	return why.Error()
}

// lostError is the end of a command that does not try again.
func lostError(what string, lost error) error {
	return &codeError{exitLost, fmt.Errorf("%s: lost: %s; the command was stopped", what, lostWhy(lost))}
}
