package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

const (
	// historyDefault is how many versions are kept at least.
	historyDefault = 10
	// historyMax is what a config can keep.
	historyMax = 1000
)

// The values of --format.
const (
	formatRaw  = "raw"
	formatText = "text"
	formatJSON = "json"
)

// configCommand is one run of a verb of "config".
type configCommand struct {
	app     *app
	format  string
	history int
}

func newConfigCommand(a *app) *cobra.Command {
	c := &configCommand{app: a}
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Read, change and watch a configuration",
		Long: `Read, change and watch a configuration: the data of one znode, each write of which is kept
in NAME-history. NAME is a path, or a name in ` + configsDir + `.

--format json or text refuses what is not JSON or not UTF-8, read or written. A write that
somebody else was faster than is a conflict, exit code 3.

  tenure config set app @app.json --format json
  tenure config edit app --format json
  tenure config watch app
  tenure config history app
  tenure config revert app 3`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; 'tenure config --help' lists them", "config "+args[0])
			}
			return cmd.Help()
		},
	}
	f := cmd.PersistentFlags()
	f.StringVar(&c.format, "format", formatRaw, "what values must be: raw (anything), text or json")
	f.IntVar(&c.history, "history", 0, fmt.Sprintf("how many versions a write keeps, to %d (default as many as there are, at least %d)", historyMax, historyDefault))
	must(cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions([]string{formatRaw, formatText, formatJSON}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.AddCommand(c.newGet(), c.newSet(), c.newEdit(), c.newWatch(), c.newHistory(), c.newRevert())
	return cmd
}

// verb makes one verb of "config" whose arguments are NAME and what want says.
func (c *configCommand) verb(use, short, long string, low, high int, run func(ctx context.Context, path string, rest []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: args(use, low, high),
		ValidArgsFunction: c.app.completeRecipe(configsDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch c.format {
			case formatRaw, formatText, formatJSON:
			default:
				return usagef("--format %q: want raw, text or json", c.format)
			}
			if c.history < 0 || c.history > historyMax {
				return usagef("--history %d: must be 0 to %d", c.history, historyMax)
			}
			path, err := recipePath(configsDir, args[0])
			if err != nil {
				return err
			}
			return run(cmd.Context(), path, args[1:])
		},
	}
}

// validate judges a value by --format.
func (c *configCommand) validate(v []byte) error {
	switch {
	case c.format == formatText && !utf8.Valid(v):
		return errors.New("not text in UTF-8")
	case c.format == formatJSON:
		var parsed any
		if err := json.Unmarshal(v, &parsed); err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
	}
	return nil
}

// open makes the config. To write it must know how many versions are kept.
func (c *configCommand) open(ctx context.Context, s recipes.Store, path string, write bool) (*recipes.Config[[]byte], error) {
	o := recipes.ConfigOptions[[]byte]{Validate: c.validate, History: c.history}
	if write && o.History == 0 {
		kept, _, err := s.Children(ctx, path+"-history")
		if err != nil && !errors.Is(err, znode.NoNode) {
			return nil, err
		}
		o.History = min(max(historyDefault, len(kept)), historyMax)
	}
	config, err := recipes.NewConfig(s, path, recipes.Raw{}, o)
	return config, invalid(err)
}

// with is askStore with the config.
func (c *configCommand) with(ctx context.Context, path string, write bool, verb func(context.Context, *recipes.Config[[]byte]) error) error {
	return c.app.askStore(ctx, func(ctx context.Context, s recipes.Store) error {
		config, err := c.open(ctx, s, path, write)
		if err != nil {
			return err
		}
		return verb(ctx, config)
	})
}

// configLine is a value in JSON.
type configLine struct {
	Exists  bool   `json:"exists"`
	Version int32  `json:"version"`
	Mzxid   string `json:"mzxid"`
	Fresh   bool   `json:"fresh"`
	Error   string `json:"error,omitempty"` // why the value is bad; its data are the last good
	dataFields
}

func configLineOf(v recipes.Value[[]byte]) configLine {
	l := configLine{Exists: v.Exists, Version: v.Stat.Version, Mzxid: formatZxid(v.Stat.Mzxid), Fresh: v.Fresh, dataFields: dataFieldsOf(v.V)}
	if v.Err != nil {
		l.Error = v.Err.Error()
	}
	return l
}

// missing is the error for a config that is not there.
func missing(path string) error {
	return &codeError{exitNotFound, fmt.Errorf("config %s: no node", path)}
}

func (c *configCommand) newGet() *cobra.Command {
	return c.verb("get NAME", "Print the value", "Print the value, all that was written before.", 1, 1,
		func(ctx context.Context, path string, _ []string) error {
			return c.with(ctx, path, false, func(ctx context.Context, config *recipes.Config[[]byte]) error {
				v, err := config.Get(ctx)
				switch {
				case err != nil:
					return err
				case !v.Exists:
					return missing(path)
				case v.Err != nil:
					return &codeError{exitError, v.Err}
				}
				return c.show(v)
			})
		})
}

// show prints a value as --output asks for it.
func (c *configCommand) show(v recipes.Value[[]byte]) error {
	a := c.app
	switch a.output {
	case outputJSON:
		return a.printJSON(configLineOf(v))
	case outputRaw:
		_, err := a.out.Write(v.V)
		return err
	}
	return writeData(a.out, v.V)
}

func (c *configCommand) newWatch() *cobra.Command {
	var count int
	cmd := c.verb("watch NAME", "Print the value now and after each change", `Print the value now and after each change: a line with its version and zxid, and the value.
If several changes come at once the latest is printed. With -o raw only values are.
It ends after --count values, or with --timeout.`, 1, 1,
		func(ctx context.Context, path string, _ []string) error {
			if count < 0 {
				return usagef("config watch: --count %d: must not be negative", count)
			}
			return c.app.withStore(ctx, func(ctx context.Context, s recipes.Store) error {
				config, err := c.open(ctx, s, path, false)
				if err != nil {
					return err
				}
				return printStream(ctx, c.app, count, config.Watch, c.showChange)
			})
		})
	cmd.Flags().IntVar(&count, "count", 0, "end after so many values, 0 = never")
	return cmd
}

// showChange prints one value of a watch.
func (c *configCommand) showChange(v recipes.Value[[]byte]) error {
	a := c.app
	if a.output == outputTable {
		state := fmt.Sprintf("version %d, zxid %s, %s", v.Stat.Version, formatZxid(v.Stat.Mzxid), freshness(v.Fresh))
		switch {
		case !v.Exists:
			state = "no node, " + freshness(v.Fresh)
		case v.Err != nil:
			state += ": " + oneLine(v.Err.Error()) + "; the last good value is"
		}
		if _, err := fmt.Fprintln(a.out, "---", state); err != nil {
			return err
		}
	}
	return c.show(v)
}
