package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tenure-dev/tenure/server"
)

// check verifies the data directory of a stopped server.
func check(args []string, stdout, stderr io.Writer) error {
	l, err := newFlags().load(args)
	if err != nil {
		return err
	}
	c := l.Config
	dir, err := lockDataDir(c.DataDir)
	if err != nil {
		return err
	}
	defer dir.close()
	c.LogLevel = "warn" // what is of interest is the report
	report, err := server.CheckDataDir(c.DataDir, newLogger(&c, stderr))
	if err != nil {
		return err
	}
	for _, p := range report.Problems {
		fmt.Fprintln(stdout, p)
	}
	if n := len(report.Problems); n > 0 {
		return fmt.Errorf("data-dir = %q: %d problems found", c.DataDir, n)
	}
	fmt.Fprintf(stdout, "sound: zxid=0x%x znodes=%d ephemerals=%d sessions=%d data-bytes=%d applied=%d replayed=%d\n",
		report.Zxid, report.Counts.Znodes, report.Counts.Ephemerals, report.Counts.Sessions,
		report.Counts.DataBytes, report.Applied, report.Replayed)
	return nil
}

// restore makes a data directory from a snapshot.
func restore(args []string, stdout, stderr io.Writer) (err error) {
	f := newFlags()
	f.set.StringVar(&f.from, "from", "", "Snapshot to restore.")
	l, err := f.load(args)
	if err != nil {
		return err
	}
	c := l.Config
	if f.from == "" {
		return usagef("restore needs --from FILE, a snapshot from `tenure snapshot save`")
	}
	snapshot, err := os.Open(f.from)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	dir, err := openDataDir(c.DataDir)
	if err != nil {
		return err
	}
	defer dir.close()
	c.LogLevel = "warn"
	info, err := server.RestoreDataDir(c.DataDir, snapshot, newLogger(&c, stderr))
	if err != nil {
		return fmt.Errorf("from %s: %w", f.from, err)
	}
	fmt.Fprintf(stdout, "restored %s: zxid=0x%x records=%d bytes=%d\n", c.DataDir, info.Zxid, info.Records, info.Bytes)
	return nil
}
