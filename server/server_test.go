package server

import (
	"testing"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// A znode survives an orderly restart, over both encodings.
func TestCreateGetRestart(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, Config{DataDir: dir})
	for _, protocol := range []string{subprotocolJute, subprotocolJSON} {
		r := dialRaw(t, s, protocol)
		r.connect(wire.ConnectRequest{})
		if path, e := r.create("/a-", protocol, znode.Mode{Sequential: true}); e != znode.OK {
			t.Fatal(path, e)
		}
	}
	stopServer(t, s)

	s = startServer(t, Config{DataDir: dir})
	r := openRaw(t, s)
	for path, want := range map[string]string{"/a-0000000000": subprotocolJute, "/a-0000000001": subprotocolJSON} {
		if got, e := r.get(path); e != znode.OK || string(got.Data) != want {
			t.Errorf("%s: %v %v, want %s", path, got, e, want)
		}
	}
}
