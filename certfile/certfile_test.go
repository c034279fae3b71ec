package certfile

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Goal: changed files are in use from the next call on; those that do not load leave the last
// good ones in use, are told once, and are tried again without another change, since the reason
// may not be theirs. Method: a file whose content names the configuration, and a load that
// fails on demand.
func TestFilesFollowChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cert.pem")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var broken error
	loads := 0
	load := func() (*tls.Config, error) {
		loads++
		b, err := os.ReadFile(path)
		return &tls.Config{ServerName: string(b)}, errors.Join(err, broken)
	}
	var logged bytes.Buffer
	write("1")
	f, err := Open([]string{path, ""}, load, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(step, config string, wantLoads, lines int) {
		t.Helper()
		if got := f.Current().ServerName; got != config || loads != wantLoads {
			t.Errorf("%s: configuration %s after %d loads, want %s after %d", step, got, loads, config, wantLoads)
		}
		if n := strings.Count(logged.String(), "\n"); n != lines {
			t.Errorf("%s: %d lines, want %d:\n%s", step, n, lines, logged.String())
		}
	}
	expect("unchanged", "1", 1, 0)
	write("22")
	expect("changed", "22", 2, 1)
	broken = errors.New("too many open files")
	write("333")
	expect("it fails", "22", 3, 2)
	expect("it fails again", "22", 4, 2)
	broken = nil
	expect("it does not fail any more", "333", 5, 3)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("no file", "333", 5, 4)
	expect("still none", "333", 5, 4)
	write("4444")
	expect("there again", "4444", 6, 5)
	expect("unchanged", "4444", 6, 5)
}

// Goal: files that cannot be read at first are an error. Method: one that is missing, and a load
// that fails.
func TestOpenFails(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if _, err := Open([]string{"missing.pem"}, nil, log); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "missing.pem") {
		t.Error(err)
	}
	bad := errors.New("bad")
	if _, err := Open(nil, func() (*tls.Config, error) { return nil, bad }, log); !errors.Is(err, bad) {
		t.Error(err)
	}
}
