package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
)

func newMembersCommand(a *app) *cobra.Command {
	var watch bool
	var count int
	cmd := &cobra.Command{
		Use:   "members GROUP",
		Short: "List the members of a group",
		Long: `List the members of GROUP, a path or a name in ` + groupsDir + `: id and data, a line each.

--watch prints the members now and after each change, a line each time: how many there are,
the zxid of the last that came or went, whether that is fresh or the last that was seen
before the connection broke, and their ids. With -o json their data are in it. It ends
after --count lines, or with --timeout.`,
		Args:              args("GROUP", 1, 1),
		ValidArgsFunction: a.completeRecipe(groupsDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := recipePath(groupsDir, args[0])
			if err != nil {
				return err
			}
			if count < 0 || count > 0 && !watch {
				return usagef("members: --count %d: is for --watch and must not be negative", count)
			}
			if watch {
				return a.withStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
					return a.watchMembers(ctx, s, path, count)
				})
			}
			return a.askStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
				return a.listMembers(ctx, s, path)
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "print them again after each change")
	cmd.Flags().IntVar(&count, "count", 0, "with --watch: end after so many lines, 0 = never")
	return cmd
}

// memberLine is one member in JSON.
type memberLine struct {
	ID    string `json:"id"`
	Czxid string `json:"czxid"` // another one is another incarnation
	dataFields
	Error string `json:"error,omitempty"` // why its data are not here
}

func memberLineOf(m recipes.Member) memberLine {
	l := memberLine{ID: m.ID, Czxid: formatZxid(m.Czxid), dataFields: dataFieldsOf(m.Data)}
	if m.Err != nil {
		l.Error = m.Err.Error()
	}
	return l
}

// listMembers prints the members, a line each.
func (a *app) listMembers(ctx context.Context, s recipes.Store, path string) error {
	group, err := recipes.NewGroup(s, path, recipes.GroupOptions{})
	if err != nil {
		return invalid(err)
	}
	v, err := group.View(ctx)
	if err != nil {
		return err
	}
	for _, m := range v.Members {
		switch {
		case a.output == outputJSON:
			err = a.printJSON(memberLineOf(m))
		case m.Err != nil:
			_, err = fmt.Fprintf(a.out, "%s\t(%s)\n", a.text(m.ID), oneLine(m.Err.Error()))
		case len(m.Data) == 0:
			_, err = fmt.Fprintln(a.out, a.text(m.ID))
		default:
			_, err = fmt.Fprintf(a.out, "%s\t%s\n", a.text(m.ID), a.text(string(m.Data)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// groupLine is the members at one moment in JSON.
type groupLine struct {
	Members []memberLine `json:"members"`
	Pzxid   string       `json:"pzxid"`
	Fresh   bool         `json:"fresh"`
}

// watchMembers prints a line for each view.
func (a *app) watchMembers(ctx context.Context, s recipes.Store, path string, count int) error {
	group, err := recipes.NewGroup(s, path, recipes.GroupOptions{})
	if err != nil {
		return invalid(err)
	}
	return printStream(ctx, a, count, group.Members, func(v recipes.GroupView) error {
		if a.output == outputJSON {
			l := groupLine{Members: []memberLine{}, Pzxid: formatZxid(v.Pzxid), Fresh: v.Fresh}
			for _, m := range v.Members {
				l.Members = append(l.Members, memberLineOf(m))
			}
			return a.printJSON(l)
		}
		fmt.Fprintf(a.out, "members %d, zxid %s, %s:", len(v.Members), formatZxid(v.Pzxid), freshness(v.Fresh))
		for _, m := range v.Members {
			fmt.Fprint(a.out, " ", a.text(m.ID))
		}
		_, err := fmt.Fprintln(a.out)
		return err
	})
}
