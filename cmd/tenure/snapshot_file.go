package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/server"
	"github.com/tenure-dev/tenure/store"
)

func newSnapshotCheckCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|-",
		Short: "Verify a snapshot",
		Long: `Verify that FILE, or standard input, is a whole and sound snapshot: every checksum, its
end and the digest of its state. No server is needed. To verify the data directory of a
stopped server use 'tenured check --data-dir DIR'.`,
		Args: args("FILE", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readSnapshot(cmd.Context(), args[0], "check", func(r io.Reader) error {
				info, err := store.VerifySnapshot(r)
				if err != nil {
					return fmt.Errorf("snapshot check %s: %w", args[0], err)
				}
				return a.printSnapshot("sound", args[0], info)
			})
		},
	}
}

func newSnapshotRestoreCommand(a *app) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "restore FILE|- --data-dir DIR",
		Short: "Make a data directory from a snapshot",
		Long: `Make DIR the data directory of a new server with the state in FILE, or in standard
input. DIR must be empty or not exist. The snapshot is verified on the way; if that
fails there is nothing at DIR that a server would start from.

All zxids that the new server gives are above those in the snapshot, so that fencing
tokens never go back. Watches that continue from before get a gap.`,
		Args: args("FILE", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				return usagef("snapshot restore: needs --data-dir DIR")
			}
			if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return &usageError{err.Error()}
			}
			return a.readSnapshot(cmd.Context(), args[0], "restore", func(r io.Reader) error {
				info, err := server.RestoreDataDir(dir, r, slog.New(slog.DiscardHandler))
				if err != nil {
					return fmt.Errorf("snapshot restore %s: %w", args[0], err)
				}
				return a.printSnapshot("restored "+dir+" from", args[0], info)
			})
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "the `DIR` to make")
	must(cmd.MarkFlagDirname("data-dir"))
	return cmd
}

// readSnapshot lets use read the snapshot in the file name, shows on a terminal how far
// that is, and ends it when ctx ends.
func (a *app) readSnapshot(ctx context.Context, name, what string, use func(io.Reader) error) error {
	input, err := a.openInput(ctx, name)
	if err != nil {
		return err
	}
	defer input.Close()
	size := int64(-1)
	if f, ok := input.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	p := a.newProgress(size, what)
	defer p.clear()
	return use(io.TeeReader(&untilDone{ctx, input}, p))
}

// untilDone reads r until ctx ends. It is used by one goroutine.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// printSnapshot says what a snapshot holds.
func (a *app) printSnapshot(verdict, name string, info store.SnapshotInfo) error {
	if a.output == outputJSON {
		return a.printJSON(struct {
			File    string `json:"file"`
			Bytes   int64  `json:"bytes"`
			Records int64  `json:"records"`
			Zxid    string `json:"zxid"`
			Digest  string `json:"digest"`
		}{name, info.Bytes, info.Records, formatZxid(info.Zxid), fmt.Sprintf("%016x", info.Digest)})
	}
	_, err := fmt.Fprintf(a.out, "%s %s: %d bytes, %d records, zxid %s, digest %016x\n",
		safeText(verdict), safeText(name), info.Bytes, info.Records, formatZxid(info.Zxid), info.Digest)
	return err
}
