package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/znode"

	"github.com/tenure-dev/tenure/recipes"
)

func (c *configCommand) newEdit() *cobra.Command {
	return c.verb("edit NAME", "Edit the value", `Open the value in $VISUAL, else $EDITOR, else vi, and write what comes of it, if nobody else has
changed the value meanwhile. If somebody has, or what comes of it is not what --format asks
for, both are shown, your text stays in the file that is named, and nothing is written.
Leaving it unchanged writes nothing.`, 1, 1,
		func(ctx context.Context, path string, _ []string) error {
			var old recipes.Value[[]byte]
			err := c.with(ctx, path, false, func(ctx context.Context, config *recipes.Config[[]byte]) (err error) {
				old, err = config.Get(ctx)
				return err
			})
			if err != nil {
				return err
			}
			return c.edit(ctx, path, old)
		})
}

// edit lets the user change the value and writes it: in another session than it was read
// in, for an editor is open for long.
func (c *configCommand) edit(ctx context.Context, path string, old recipes.Value[[]byte]) error {
	file, err := c.draft(path, old.V)
	if err != nil {
		return err
	}
	kept := func(err error) error { return fmt.Errorf("%w; your text is in %s", err, file) }
	if err := c.runEditor(ctx, file); err != nil {
		return kept(err)
	}
	text, err := readFileMax(file, valueMax)
	if err != nil {
		return kept(err)
	}
	if old.Exists && bytes.Equal(text, old.V) {
		c.app.note("%s: unchanged", path)
		return os.Remove(file)
	}
	if err := c.validate(text); err != nil {
		return kept(usagef("config edit: the text is %v", err))
	}
	err = c.with(ctx, path, true, func(ctx context.Context, config *recipes.Config[[]byte]) error {
		v, err := config.CompareAndSet(ctx, old, text)
		if errors.Is(err, recipes.ErrConflict) {
			return errors.Join(err, c.showBoth(ctx, config, file, text))
		}
		if err != nil {
			return err
		}
		return c.showVersion(v)
	})
	if err != nil {
		return kept(err)
	}
	return os.Remove(file)
}

// draft makes the file that is edited, which only the user can read.
func (c *configCommand) draft(path string, value []byte) (string, error) {
	_, name := znode.Split(path)
	suffix := ".txt"
	if c.format == formatJSON {
		suffix = ".json"
	}
	f, err := os.CreateTemp("", "tenure-"+filepath.Base(name)+"-*"+suffix)
	if err != nil {
		return "", err
	}
	_, err = f.Write(value)
	return f.Name(), errors.Join(err, f.Close())
}

// runEditor waits for the user.
func (c *configCommand) runEditor(ctx context.Context, file string) error {
	editor := os.Getenv("VISUAL")
	if editor == "" {
		editor = os.Getenv("EDITOR")
	}
	if editor == "" {
		editor = "vi"
	}
	// The variable may hold arguments: the shell reads it, and the file's name is its own.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", editor+` "$1"`, "sh", file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.app.stdin, c.app.stdout, c.app.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("config edit: editor %q: %w", editor, err)
	}
	return nil
}

// showBoth shows what is stored and what the user made.
func (c *configCommand) showBoth(ctx context.Context, config *recipes.Config[[]byte], file string, text []byte) error {
	now, err := config.Get(ctx)
	if err != nil {
		return err
	}
	w := c.app.stderr
	fmt.Fprintf(w, "--- stored, version %d\n", now.Stat.Version)
	if err := writeData(w, now.V); err != nil {
		return err
	}
	fmt.Fprintf(w, "--- yours, %s\n", file)
	return writeData(w, text)
}
