package bench

import (
	"context"

	"github.com/tenure-dev/tenure/znode"
)

// Target is a coordination service to be measured. Another protocol is one more
// implementation of Target and Conn, in one file. It is safe for concurrent use.
type Target interface {
	// Name says in a few words what is measured: product, version, address.
	Name() string
	// Connect opens a session of its own, with room for outstanding requests at once.
	Connect(ctx context.Context, outstanding int) (Conn, error)
	// Usage returns what the server's process has used so far; ok is false if it does
	// not tell.
	Usage(ctx context.Context) (u Usage, ok bool)
	// ErrorKind names the kind of an error that a Conn returned, in few words.
	ErrorKind(err error) string
}

// Usage is what a server's process, or those of all members, have used since their start.
type Usage struct {
	CPUSeconds    float64
	ResidentBytes float64
}

// Plus is what both have used.
func (u Usage) Plus(o Usage) Usage {
	return Usage{CPUSeconds: u.CPUSeconds + o.CPUSeconds, ResidentBytes: u.ResidentBytes + o.ResidentBytes}
}

// Conn is one session on one connection. It is safe for concurrent use: each call
// blocks its caller only, so requests are pipelined by calling from many goroutines.
// Data given to it is not changed.
type Conn interface {
	// Create returns the path of the new node, which differs if mode is sequential.
	Create(ctx context.Context, path string, data []byte, mode znode.Mode) (string, error)
	Set(ctx context.Context, path string, data []byte) error
	Get(ctx context.Context, path string) error
	Exists(ctx context.Context, path string) error
	// List returns how many children path has after having read all their names.
	List(ctx context.Context, path string) (int, error)
	Delete(ctx context.Context, path string) error
	// DeleteAll deletes paths, at most deleteBatch, in one transaction.
	DeleteAll(ctx context.Context, paths []string) error
	// Watch waits until the data of path changes. It calls armed once when the server
	// has confirmed the watch.
	Watch(ctx context.Context, path string, armed func()) error
	// Close ends the session.
	Close() error
}
