package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newSnapshotCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save, check and restore the whole state",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("snapshot: unknown command %q: want save, check or restore", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newSnapshotSaveCommand(a), newSnapshotCheckCommand(a), newSnapshotRestoreCommand(a))
	return cmd
}

func newSnapshotSaveCommand(a *app) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "save FILE|-",
		Short: "Save a snapshot of the state of a running server",
		Long: `Save a consistent snapshot of the whole state of a running server to FILE, or to
standard output. The server asks for its admin token (--token-file), which is the file
admin.token of its data directory. FILE appears only when it is complete; it can be
read by its owner only, as it holds all data and the passwords of sessions.`,
		Args: args("FILE", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.snapshotSave(cmd.Context(), args[0], force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return cmd
}

// snapshotSave downloads a snapshot from the first server that can be reached.
func (a *app) snapshotSave(ctx context.Context, name string, force bool) error {
	servers, err := a.tenureServers("snapshot save")
	if err != nil {
		return err
	}
	token, err := a.adminToken()
	if err != nil {
		return err
	}
	if token == "" {
		return usagef("snapshot save: needs the server's admin token; see --token-file")
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	return firstAnswer(servers, func(server endpoint) error {
		response, err := a.httpGet(ctx, server, "/v1/snapshot", token)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		write := func(w io.Writer) (int64, error) {
			p := a.newProgress(response.ContentLength, "save")
			defer p.clear()
			return io.Copy(io.MultiWriter(w, p), response.Body)
		}
		if name == "-" {
			_, err = write(a.out)
			return err
		}
		n, err := writeWhole(name, force, write)
		if err != nil {
			return fmt.Errorf("snapshot save %s from %s: %w", name, server.host, err)
		}
		return a.printSaved(name, n, response.Trailer.Get("Tenure-Snapshot-Zxid"), response.Trailer.Get("Tenure-Snapshot-Digest"))
	})
}

func (a *app) printSaved(name string, n int64, zxid, digest string) error {
	if a.output == outputJSON {
		return a.printJSON(struct {
			File   string `json:"file"`
			Bytes  int64  `json:"bytes"`
			Zxid   string `json:"zxid,omitempty"`
			Digest string `json:"digest,omitempty"`
		}{name, n, zxid, digest})
	}
	_, err := fmt.Fprintf(a.out, "saved %s: %d bytes, zxid %s, digest %s\n", safeText(name), n, safeText(zxid), safeText(digest))
	return err
}

// writeWhole lets write fill a new file, which gets its name only when it is complete
// and on disk. An existing one is replaced only with force.
func writeWhole(name string, force bool, write func(io.Writer) (int64, error)) (n int64, err error) {
	if _, err := os.Lstat(name); err == nil && !force {
		return 0, usagef("%s exists; --force replaces it", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // mode 0600
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if n, err = write(f); err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return n, err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return n, err
	}
	return n, syncDir(filepath.Dir(name))
}

// syncDir makes a new name in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
