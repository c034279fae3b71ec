package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/wire"
)

func newMemberCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "member",
		Short: "List the members of the ensemble, and change them",
		Long: `List the members of the ensemble, and change them, through any member. All but list ask
for the admin token (--token-file), which is the file admin.token in the data directory of the
member asked.

A member begins as a learner: it follows and serves clients, but has no vote, so nothing waits
for it. 'member promote' gives it one when it has caught up. What would leave the ensemble
without a majority that answers is refused, and so is an id that was in use before.

To replace a member: add one under a new id, start it, promote it, remove the old one.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("member: unknown command %q: want list, add, promote, demote, remove, move or transfer", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newMemberListCommand(a), newMemberAddCommand(a), newMemberTransferCommand(a), newMemberMoveCommand(a),
		newMemberStepCommand(a, "promote", "Give a learner a vote", wire.MemberPromote),
		newMemberStepCommand(a, "demote", "Make a voter a learner", wire.MemberDemote),
		newMemberStepCommand(a, "remove", "Remove a member; its id is never used again", wire.MemberRemove))
	return cmd
}

func newMemberListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the members",
		Long: `List the members: id, role, whether it answers, how many entries of the leader's log it
lacks, and the address at which it listens for the others. Without a leader that is what the
member asked knows, and whether others answer is not known.`,
		Args: args("no argument", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTenure(cmd.Context(), "member list", func(ctx context.Context, c *conn) error {
				m, err := c.Members(ctx)
				if err != nil {
					return err
				}
				return a.printMembers(&m)
			})
		},
	}
}

func newMemberAddCommand(a *app) *cobra.Command {
	var peer, id string
	cmd := &cobra.Command{
		Use:   "add --peer HOST:PORT",
		Short: "Add a member as a learner",
		Long: `Add a member as a learner and print the command that starts it. --peer is the address at
which it will listen for the other members. A wrong address does no harm: remove the member
and add it again under another id.`,
		Args: args("no argument", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if peer == "" {
				return usagef("member add: needs --peer HOST:PORT, where the new member will listen for the others")
			}
			number := int32(0)
			if id != "" {
				n, err := parseMemberID("member add: --id", id)
				if err != nil {
					return err
				}
				number = n
			}
			return a.withTenure(cmd.Context(), "member add", func(ctx context.Context, c *conn) error {
				return a.memberAdd(ctx, c, number, peer)
			})
		},
	}
	cmd.Flags().StringVar(&peer, "peer", "", "`HOST:PORT` at which the new member will listen for the others")
	cmd.Flags().StringVar(&id, "id", "", "the new member's `ID`, 1 to 255, which no member ever had (default: the lowest one)")
	return cmd
}

// newMemberStepCommand is a command for a step that only needs an id.
func newMemberStepCommand(a *app, name, short string, kind wire.MemberStepKind) *cobra.Command {
	return &cobra.Command{
		Use:   name + " ID",
		Short: short,
		Args:  args("ID", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseMemberID("member "+name, args[0])
			if err != nil {
				return err
			}
			return a.withTenure(cmd.Context(), "member "+name, func(ctx context.Context, c *conn) error {
				m, err := c.ChangeMembers(ctx, wire.MemberStep{Kind: kind, ID: id})
				if err != nil {
					return err
				}
				return a.printMembers(&m)
			})
		},
	}
}

func newMemberMoveCommand(a *app) *cobra.Command {
	peer := ""
	cmd := &cobra.Command{
		Use:   "move ID --peer HOST:PORT",
		Short: "Tell the others where a member listens from now on",
		Args:  args("ID", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseMemberID("member move", args[0])
			if err != nil {
				return err
			}
			if peer == "" {
				return usagef("member move: needs --peer HOST:PORT")
			}
			return a.withTenure(cmd.Context(), "member move", func(ctx context.Context, c *conn) error {
				m, err := c.ChangeMembers(ctx, wire.MemberStep{Kind: wire.MemberMove, ID: id, Address: peer})
				if err != nil {
					return err
				}
				return a.printMembers(&m)
			})
		},
	}
	cmd.Flags().StringVar(&peer, "peer", "", "`HOST:PORT` at which the member listens for the others")
	return cmd
}

func newMemberTransferCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "transfer [ID]",
		Short: "Make another member the leader: ID, or whoever is fit best",
		Args:  args("at most one ID", 0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := int32(0)
			if len(args) > 0 {
				n, err := parseMemberID("member transfer", args[0])
				if err != nil {
					return err
				}
				id = n
			}
			return a.withTenure(cmd.Context(), "member transfer", func(ctx context.Context, c *conn) error {
				m, err := c.TransferLead(ctx, id)
				if err != nil {
					return err
				}
				return a.printMembers(&m)
			})
		},
	}
}

func parseMemberID(what, text string) (int32, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n == 0 {
		return 0, usagef("%s %q: want a member's id from 1 to 255", what, text)
	}
	return int32(n), nil
}

// memberAdd adds a learner, under the next free id if id is 0.
func (a *app) memberAdd(ctx context.Context, c *conn, id int32, peer string) error {
	if id == 0 {
		m, err := c.Members(ctx)
		if err != nil {
			return err
		}
		if id = m.Free; id == 0 {
			return errors.New("member add: all ids from 1 to 255 are used up")
		}
	}
	m, err := c.ChangeMembers(ctx, wire.MemberStep{Kind: wire.MemberAdd, ID: id, Address: peer})
	if err != nil {
		return err
	}
	if a.output == outputJSON {
		return a.printMembers(&m)
	}
	fmt.Fprintf(a.out, "member %d is added as a learner. Start it, with an empty data directory, by\n\n    %s\n\n"+
		"and when 'tenure member list' shows that it lacks nothing give it a vote by\n\n    tenure member promote %d\n",
		id, startCommand(&m, id), id)
	return nil
}

// startCommand is the command that starts a member that was added.
func startCommand(m *wire.MembersReply, id int32) string {
	var others []string
	peer := ""
	for _, e := range m.Members {
		if e.ID == id {
			peer = e.Address
		} else {
			others = append(others, fmt.Sprintf("%d=%s", e.ID, e.Address))
		}
	}
	return fmt.Sprintf("tenured --data-dir DIR --member-id %d --join --cluster-id %016x --peer-listen %s --initial-members %s",
		id, uint64(m.Cluster), safeText(peer), safeText(strings.Join(others, ",")))
}

// printMembers prints the members, a line each.
func (a *app) printMembers(m *wire.MembersReply) error {
	if a.output == outputJSON {
		return a.printMembersJSON(m)
	}
	fmt.Fprintf(a.out, "%-4s %-9s %-10s %8s %s\n", "ID", "ROLE", "ANSWERING", "LAG", "ADDRESS")
	for i := range m.Members {
		e := &m.Members[i]
		answering, lag := "-", "-"
		if m.Current {
			answering, lag = "no", strconv.FormatInt(e.Lag, 10)
			if e.Answering {
				answering = "yes"
			}
		}
		fmt.Fprintf(a.out, "%-4d %-9s %-10s %8s %s\n", e.ID, memberRole(m, e), answering, lag, safeText(e.Address))
	}
	if !m.Current {
		fmt.Fprintln(a.out, "there is no leader: this is what the member asked knows")
	}
	if m.Changing {
		fmt.Fprintln(a.out, "a change of the members is under way")
	}
	return nil
}

// memberRole is what a member is, in one word.
func memberRole(m *wire.MembersReply, e *wire.MemberInfo) string {
	switch {
	case e.ID == m.Leader:
		return "leader"
	case e.Voter:
		return "follower"
	}
	return "learner"
}

type memberJSON struct {
	ID        int32  `json:"id"`
	Role      string `json:"role"`
	Voter     bool   `json:"voter"`
	Address   string `json:"address"`
	Answering *bool  `json:"answering,omitempty"` // known to a leader only, and so is lag
	Lag       *int64 `json:"lag,omitempty"`
}

func (a *app) printMembersJSON(m *wire.MembersReply) error {
	list := make([]memberJSON, len(m.Members))
	for i := range m.Members {
		e := &m.Members[i]
		list[i] = memberJSON{ID: e.ID, Role: memberRole(m, e), Voter: e.Voter, Address: e.Address}
		if m.Current {
			list[i].Answering, list[i].Lag = &e.Answering, &e.Lag
		}
	}
	return a.printJSON(struct {
		Cluster  string       `json:"cluster"`
		Leader   int32        `json:"leader"` // 0 = unknown
		Changing bool         `json:"changing"`
		Members  []memberJSON `json:"members"`
		Removed  []int32      `json:"removed"`
	}{fmt.Sprintf("%016x", uint64(m.Cluster)), m.Leader, m.Changing, list, m.Removed})
}
