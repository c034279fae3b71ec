package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// Tenure measures a Tenure server through package client. Its fields are not changed
// after the first use.
type Tenure struct {
	// Label is what Name returns.
	Label string
	// Options are those of each connection; Window is set to what is needed.
	Options client.Options
	// Stale lets reads be stale.
	Stale bool
	// ReadUsage, if set, asks the server for its usage.
	ReadUsage func(ctx context.Context) (Usage, bool)
}

// Name implements Target.
func (t *Tenure) Name() string { return t.Label }

// Connect implements Target.
func (t *Tenure) Connect(ctx context.Context, outstanding int) (Conn, error) {
	o := t.Options
	o.Window = max(outstanding, 16)
	c, err := client.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return &tenureConn{c: c, read: client.ReadOptions{Stale: t.Stale}}, nil
}

// Usage implements Target.
func (t *Tenure) Usage(ctx context.Context) (Usage, bool) {
	if t.ReadUsage == nil {
		return Usage{}, false
	}
	return t.ReadUsage(ctx)
}

// ErrorKind implements Target.
func (t *Tenure) ErrorKind(err error) string {
	var code znode.Error
	switch {
	case errors.As(err, &code):
		return code.Name()
	case errors.Is(err, client.ErrUnknown):
		return "outcome unknown"
	case errors.Is(err, client.ErrUnavailable):
		return "not sent"
	case errors.Is(err, client.ErrTooLarge):
		return "too large"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	}
	return "other"
}

// tenureConn is a Conn over a client.Client.
type tenureConn struct {
	c    *client.Client
	read client.ReadOptions
}

func (t *tenureConn) Create(ctx context.Context, path string, data []byte, mode znode.Mode) (string, error) {
	path, _, err := t.c.Create(ctx, path, data, client.CreateOptions{Mode: mode})
	return path, err
}

func (t *tenureConn) Set(ctx context.Context, path string, data []byte) error {
	_, err := t.c.Set(ctx, path, data, -1)
	return err
}

func (t *tenureConn) Get(ctx context.Context, path string) error {
	_, _, err := t.c.Get(ctx, path, t.read)
	return err
}

func (t *tenureConn) Exists(ctx context.Context, path string) error {
	_, exists, err := t.c.Exists(ctx, path, t.read)
	if err == nil && !exists {
		err = &client.Error{Op: "exists", Path: path, Code: znode.NoNode}
	}
	return err
}

func (t *tenureConn) List(ctx context.Context, path string) (int, error) {
	names, _, err := t.c.Children(ctx, path, t.read)
	return len(names), err
}

func (t *tenureConn) Delete(ctx context.Context, path string) error {
	return t.c.Delete(ctx, path, -1)
}

func (t *tenureConn) DeleteAll(ctx context.Context, paths []string) error {
	ops := make([]znode.Op, len(paths))
	for i, path := range paths {
		ops[i] = &znode.Delete{Path: path, Version: -1}
	}
	_, err := t.c.Multi(ctx, ops...)
	return err
}

func (t *tenureConn) Watch(ctx context.Context, path string, armed func()) error {
	_, _, watch, err := t.c.GetW(ctx, path)
	if err != nil {
		return err
	}
	defer watch.Cancel()
	armed()
	select {
	case _, told := <-watch.C:
		if !told {
			return fmt.Errorf("watch %s: the session ended", path)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tenureConn) Close() error { return t.c.Close() }
