// Package certfile keeps a TLS configuration up to date with the files it is made of, so
// that certificates are replaced without a restart.
package certfile

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// Files is a TLS configuration that is made of files, read again when one of them has
// changed. It is safe for concurrent use.
type Files struct {
	paths []string
	load  func() (*tls.Config, error)
	log   *slog.Logger

	mu struct {
		sync.Mutex
		stamp  string // of the files that config was made of
		config *tls.Config
		failed string // why they were last not replaced; "" if nothing failed since
	}
}

// Open reads the files with load for the first time, whose error is final. Empty paths
// are left out; the first is the one that log lines name.
func Open(paths []string, load func() (*tls.Config, error), log *slog.Logger) (*Files, error) {
	f := &Files{paths: paths, load: load, log: log}
	var err error
	if f.mu.stamp, err = f.stamp(); err != nil {
		return nil, err
	}
	f.mu.config, err = load()
	return f, err
}

// Current looks whether the files have changed, which costs a stat each against a
// handshake's millisecond. Files that do not load leave the last good ones in use, since a
// certificate and its key are rarely replaced in one instant, and are tried again each time:
// what failed may be the process, which has no descriptor left. The log says each reason once.
func (f *Files) Current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp, err := f.stamp()
	if err == nil && stamp == f.mu.stamp {
		f.mu.failed = ""
		return f.mu.config
	}
	var config *tls.Config
	if err == nil {
		config, err = f.load()
	}
	if err != nil {
		if reason := err.Error(); reason != f.mu.failed {
			f.mu.failed = reason
			f.log.Error("TLS files have changed but do not load; the last good ones stay in use", "error", err)
		}
		return f.mu.config
	}
	f.mu.stamp, f.mu.config, f.mu.failed = stamp, config, ""
	f.log.Info("TLS files have changed and are in use", "cert", f.paths[0])
	return config
}

// stamp is a text that differs when one of the files differs.
func (f *Files) stamp() (string, error) {
	stamp := ""
	for _, path := range f.paths {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("TLS file: %w", err)
		}
		stamp += fmt.Sprintf("%d %d;", info.ModTime().UnixNano(), info.Size())
	}
	return stamp, nil
}
