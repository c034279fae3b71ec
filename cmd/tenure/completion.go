package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

const (
	// completionLimit bounds what a press of the tab key may cost.
	completionLimit = time.Second
	// completionsMax bounds how many paths it offers.
	completionsMax = 200
)

// completePath completes the first argument of a verb as a path. It says nothing where
// it fails: there is nobody to read it.
func (a *app) completePath(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // values: files, as @FILE, are as good a guess as any
	}
	if toComplete == "" {
		return []cobra.Completion{"/"}, directive
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	quiet := *a
	quiet.stderr = io.Discard
	var paths []string
	err := quiet.withConn(ctx, func(ctx context.Context, c *conn) error {
		var err error
		paths, err = completions(ctx, c, toComplete)
		return err
	})
	if err != nil && len(paths) == 0 {
		return nil, directive
	}
	return paths, directive
}

// completions returns the paths that start with typed: of its parent's children, those
// whose names go on as typed does.
func completions(ctx context.Context, l lister, typed string) ([]string, error) {
	slash := strings.LastIndexByte(typed, '/')
	if slash < 0 {
		return nil, nil
	}
	dir, prefix := typed[:slash], typed[slash+1:]
	if dir == "" {
		dir = "/"
	}
	var paths []string
	add := func(name string) {
		if !strings.ContainsAny(name, "\t\n") { // which the shell's side would misread
			paths = append(paths, znode.Join(dir, name))
		}
	}
	// A listing goes on behind a name: what is typed may itself be the first.
	if prefix != "" {
		switch _, err := l.List(ctx, typed, wire.List{Path: typed, Limit: 1}); {
		case err == nil:
			add(prefix)
		case !errors.Is(err, znode.NoNode):
			return nil, err
		}
	}
	page, err := l.List(ctx, dir, wire.List{Path: dir, After: prefix, Limit: completionsMax})
	if err != nil {
		return paths, err
	}
	for _, name := range page.Names {
		if !strings.HasPrefix(name, prefix) {
			break // the names are in order
		}
		add(name)
	}
	return paths, nil
}
