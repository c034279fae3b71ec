package client

import (
	"context"
	"net"
	"sync"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// ExampleServer is a fake ensemble of one member for the examples, which see only what
// users see.
type ExampleServer struct {
	f  *fakeEnsemble
	m  *fakeMember
	wg sync.WaitGroup
}

// NewExampleServer starts a server at "example:2180".
func NewExampleServer() *ExampleServer {
	e := &ExampleServer{m: &fakeMember{ln: newPipeListener()}}
	e.f = &fakeEnsemble{tree: znode.NewTree(), sessions: map[session.ID]*fakeSession{},
		members: map[string]*fakeMember{"example:2180": e.m}, conns: map[*fakeConn]bool{}}
	e.wg.Go(func() { _ = e.f.httpServer(e.m).Serve(e.m.ln) })
	return e
}

// Dial is for Options.Dial.
func (e *ExampleServer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return e.f.dial(ctx, network, addr)
}

// Close stops the server.
func (e *ExampleServer) Close() {
	e.m.ln.Close()
	e.wg.Wait()
}
