package replica

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLogger passes raft's messages on. What raft calls fatal or panic means that an
// invariant is broken, or that the log could not be read, and panics.
type raftLogger struct{ log *slog.Logger }

func (r raftLogger) put(l slog.Level, v []any) {
	if r.log.Enabled(context.Background(), l) {
		r.log.Log(context.Background(), l, "raft", "msg", fmt.Sprint(v...))
	}
}

func (r raftLogger) putf(l slog.Level, format string, v []any) {
	if r.log.Enabled(context.Background(), l) {
		r.log.Log(context.Background(), l, "raft", "msg", fmt.Sprintf(format, v...))
	}
}

func (r raftLogger) Debug(v ...any)                 { r.put(slog.LevelDebug, v) }
func (r raftLogger) Debugf(format string, v ...any) { r.putf(slog.LevelDebug, format, v) }

// Info and Infof are at debug level: raft reports every step of an election.
func (r raftLogger) Info(v ...any)                 { r.put(slog.LevelDebug, v) }
func (r raftLogger) Infof(format string, v ...any) { r.putf(slog.LevelDebug, format, v) }

func (r raftLogger) Warning(v ...any)                 { r.put(slog.LevelWarn, v) }
func (r raftLogger) Warningf(format string, v ...any) { r.putf(slog.LevelWarn, format, v) }
func (r raftLogger) Error(v ...any)                   { r.put(slog.LevelError, v) }
func (r raftLogger) Errorf(format string, v ...any)   { r.putf(slog.LevelError, format, v) }
func (r raftLogger) Fatal(v ...any)                   { panic("raft: " + fmt.Sprint(v...)) }
func (r raftLogger) Fatalf(format string, v ...any)   { panic("raft: " + fmt.Sprintf(format, v...)) }
func (r raftLogger) Panic(v ...any)                   { panic("raft: " + fmt.Sprint(v...)) }
func (r raftLogger) Panicf(format string, v ...any)   { panic("raft: " + fmt.Sprintf(format, v...)) }
