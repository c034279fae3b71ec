package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
)

// ifNone is the --if-version of a config that must not exist.
const ifNone = "none"

func (c *configCommand) newSet() *cobra.Command {
	var ifVersion string
	cmd := c.verb("set NAME VALUE", "Change the value", `Make VALUE the value: as it is, @FILE the content of FILE, - standard input, @@text the text
"@text". --if-version N writes only if the version is N, and exits with 3 if it is not;
--if-version none only if there is none. The new version is printed.`, 2, 2,
		func(ctx context.Context, path string, rest []string) error {
			value, err := c.app.value(ctx, rest[0])
			if err != nil {
				return err
			}
			if err := c.validate(value); err != nil {
				return usagef("config set: the value is %v", err)
			}
			var version int64
			if ifVersion != "" && ifVersion != ifNone {
				if version, err = strconv.ParseInt(ifVersion, 10, 32); err != nil {
					return usagef("config set: --if-version %q: want a version or none", ifVersion)
				}
			}
			return c.with(ctx, path, true, func(ctx context.Context, config *recipes.Config[[]byte]) error {
				v, err := writeConfig(ctx, config, value, ifVersion, int32(version))
				if err != nil {
					return err
				}
				return c.showVersion(v)
			})
		})
	cmd.Flags().StringVar(&ifVersion, "if-version", "", "write only if the version is `N`, or none if there is no value")
	return cmd
}

// writeConfig writes value if the condition is met; "" is none.
func writeConfig(ctx context.Context, config *recipes.Config[[]byte], value []byte, condition string, version int32) (recipes.Value[[]byte], error) {
	if condition == "" {
		return config.Set(ctx, value)
	}
	old, err := config.Get(ctx)
	if err != nil {
		return old, err
	}
	switch {
	case condition == ifNone && old.Exists:
		return old, fmt.Errorf("it exists, with version %d: %w", old.Stat.Version, recipes.ErrConflict)
	case condition != ifNone && !old.Exists:
		return old, fmt.Errorf("there is none: %w", recipes.ErrConflict)
	case condition != ifNone && old.Stat.Version != version:
		return old, fmt.Errorf("its version is %d: %w", old.Stat.Version, recipes.ErrConflict)
	}
	return config.CompareAndSet(ctx, old, value)
}

// showVersion prints what a write made.
func (c *configCommand) showVersion(v recipes.Value[[]byte]) error {
	if c.app.output == outputJSON {
		return c.app.printJSON(configLineOf(v))
	}
	_, err := fmt.Fprintf(c.app.out, "version %d\n", v.Stat.Version)
	return err
}

// versionLine is an old value in JSON.
type versionLine struct {
	Number    string `json:"number"`
	WrittenAt string `json:"writtenAt"`
	Error     string `json:"error,omitempty"`
	dataFields
}

func (c *configCommand) newHistory() *cobra.Command {
	return c.verb("history NAME", "List the versions that are kept", `List the versions that are kept, the newest first: number, time, size and how the value begins;
with -o json the whole value. 'config revert' takes the number.`, 1, 1,
		func(ctx context.Context, path string, _ []string) error {
			return c.with(ctx, path, false, func(ctx context.Context, config *recipes.Config[[]byte]) error {
				all, err := config.History(ctx)
				for _, v := range all {
					err = errors.Join(err, c.showPast(v))
				}
				return err
			})
		})
}

// previewMax is how much of a value a line of the history shows.
const previewMax = 40

func (c *configCommand) showPast(v recipes.Version[[]byte]) error {
	a, at := c.app, formatTime(v.WrittenAt.UnixMilli())
	if a.output == outputJSON {
		l := versionLine{Number: strconv.FormatInt(v.Number, 10), WrittenAt: at, dataFields: dataFieldsOf(v.V)}
		if v.Err != nil {
			l.Error = v.Err.Error()
		}
		return a.printJSON(l)
	}
	preview := v.V
	if len(preview) > previewMax {
		preview = preview[:previewMax]
	}
	_, err := fmt.Fprintf(a.out, "%d\t%s\t%d bytes\t%s\n", v.Number, at, len(v.V), safeText(string(preview)))
	return err
}

func (c *configCommand) newRevert() *cobra.Command {
	return c.verb("revert NAME NUMBER", "Make an old version the value again", `Make the version NUMBER of 'config history' the value again, which is a new version.`, 2, 2,
		func(ctx context.Context, path string, rest []string) error {
			number, err := strconv.ParseInt(rest[0], 10, 64)
			if err != nil {
				return usagef("config revert: NUMBER %q: want one of 'tenure config history'", rest[0])
			}
			return c.with(ctx, path, true, func(ctx context.Context, config *recipes.Config[[]byte]) error {
				v, err := config.Revert(ctx, number)
				if err != nil {
					return err
				}
				return c.showVersion(v)
			})
		})
}
