package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
)

// leaseCommand is one run of "lease".
type leaseCommand struct {
	app      *app
	options  recipes.LeaseOptions
	try      bool
	handOver string
	argv     []string
}

func newLeaseCommand(a *app) *cobra.Command {
	l := &leaseCommand{app: a}
	cmd := &cobra.Command{
		Use:   "lease NAME [-- CMD [ARG...]]",
		Short: "Show a lease, or run a command while holding it",
		Long: `Show the record of the lease NAME, which is a path or a name in
` + leasesDir + `. With a CMD: take the lease, run CMD, release the lease and exit with CMD's exit
code. A lease is a record that is written again and again, and needs no session: a holder
that vanished is succeeded when its record has not changed for its duration.

A holder believes for --renew-deadline from its last renewal, others wait for --duration;
both differ enough for clocks that run at rates of 1 % difference. --try exits with 3 if the
lease is not free, --timeout D if it was not within D; if it is lost the exit code is 7.

--hand-over ID asks the holder to make way for the holder with that --id: its CMD gets
SIGTERM.

` + commandHelp + `
TENURE_LEASE has NAME, TENURE_PATH its path.

  tenure lease nightly -- ./nightly.sh
  tenure lease nightly --duration 30s --renew-deadline 20s --retry-period 4s -- ./nightly.sh
  tenure lease nightly
  tenure lease nightly --hand-over host-2`,
		ValidArgsFunction: a.completeRecipe(leasesDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			own, argv := splitAtDash(cmd, args)
			l.argv = argv
			path, err := l.prepare(own, cmd.ArgsLenAtDash() >= 0)
			switch {
			case err != nil:
				return err
			case argv != nil:
				return a.withStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
					return l.hold(ctx, s, own[0], path)
				})
			}
			return a.askStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
				return l.ask(ctx, s, path)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.options.ID, "id", "", "who this is (default host-pid-random)")
	f.DurationVar(&l.options.Duration, "duration", 0, "how long others leave a record alone that does not change (default 15s)")
	f.DurationVar(&l.options.RenewDeadline, "renew-deadline", 0, "how long one renewal is worth (default two thirds of --duration)")
	f.DurationVar(&l.options.RetryPeriod, "retry-period", 0, "time between renewals (default a fifth of --renew-deadline)")
	f.BoolVar(&l.try, "try", false, "do not wait for others")
	f.StringVar(&l.handOver, "hand-over", "", "ask the holder to make way for the holder `ID`")
	return cmd
}

// prepare judges the command line.
func (l *leaseCommand) prepare(own []string, dash bool) (string, error) {
	switch {
	case len(own) != 1 || dash && len(l.argv) == 0:
		return "", usagef("lease: want NAME [-- CMD], got %d name(s); see 'tenure lease --help'", len(own))
	case l.handOver != "" && dash:
		return "", usagef("lease: --hand-over takes no CMD")
	case l.try && !dash:
		return "", usagef("lease: --try needs a command behind --")
	case dash:
		if err := findCommand(l.argv); err != nil {
			return "", err
		}
	}
	return recipePath(leasesDir, own[0])
}

// hold takes the lease and runs the command.
func (l *leaseCommand) hold(ctx context.Context, s recipes.Store, name, path string) error {
	lease, err := recipes.NewLease(s, path, l.options)
	if err != nil {
		return invalid(err)
	}
	t, err := l.take(ctx, s, path, lease)
	if err != nil {
		return err
	}
	outcome, lost := l.app.underTenure(ctx, t, processRun{
		what: path, argv: l.argv, stdin: l.app.commandInput(), env: []string{"TENURE_LEASE=" + name},
	})
	if lost != nil && ctx.Err() == nil {
		return lostError(path, lost)
	}
	return outcome
}

func (l *leaseCommand) take(ctx context.Context, s recipes.Store, path string, lease *recipes.Lease) (*recipes.Tenure, error) {
	if !l.try {
		return l.app.winning(ctx, s, path, lease.Acquire)
	}
	bounded, cancel := context.WithTimeout(ctx, l.app.limit())
	defer cancel()
	t, taken, err := lease.TryAcquire(bounded)
	if err == nil && !taken {
		err = &codeError{exitConflict, fmt.Errorf("%s: held by another, or not seen for long enough to tell", path)}
	}
	return t, err
}

// leaseLine is the record of a lease in JSON.
type leaseLine struct {
	Holder      string `json:"holder"` // empty: nobody
	Token       string `json:"token"`
	Transitions string `json:"transitions"`
	Renewals    string `json:"renewals"`
	Duration    string `json:"duration"`
	RenewedAt   string `json:"renewedAt,omitempty"` // by the holder's clock
	Preferred   string `json:"preferred,omitempty"`
	Floor       string `json:"floor,omitempty"`
}

// ask asks for the hand-over, or shows the record.
func (l *leaseCommand) ask(ctx context.Context, s recipes.Store, path string) error {
	lease, err := recipes.NewLease(s, path, l.options)
	if err != nil {
		return invalid(err)
	}
	if l.handOver != "" {
		return lease.HandOver(ctx, l.handOver)
	}
	r, stat, err := lease.Record(ctx)
	switch {
	case err != nil:
		return err
	case stat.Czxid == 0:
		return &codeError{exitNotFound, fmt.Errorf("%s: no lease: nobody has held it yet", path)}
	}
	line := leaseLine{
		Holder: r.Holder, Token: fmt.Sprint(uint64(r.Token)), Transitions: fmt.Sprint(r.Transitions),
		Renewals: fmt.Sprint(r.Renewals), Duration: (time.Duration(r.DurationMS) * time.Millisecond).String(),
		Preferred: r.Preferred,
	}
	if r.Floor != 0 {
		line.Floor = fmt.Sprint(uint64(r.Floor))
	}
	if !r.RenewedAt.IsZero() {
		line.RenewedAt = formatTime(r.RenewedAt.UnixMilli())
	}
	return l.show(line)
}

func (l *leaseCommand) show(r leaseLine) error {
	a := l.app
	if a.output == outputJSON {
		return a.printJSON(r)
	}
	for _, row := range [][2]string{
		{"holder", r.Holder}, {"token", r.Token}, {"transitions", r.Transitions}, {"renewals", r.Renewals},
		{"duration", r.Duration}, {"renewed", r.RenewedAt}, {"preferred", r.Preferred}, {"floor", r.Floor},
	} {
		if row[1] == "" {
			row[1] = "-"
		}
		if _, err := fmt.Fprintf(a.out, "%-12s %s\n", row[0], a.text(row[1])); err != nil {
			return err
		}
	}
	return nil
}
