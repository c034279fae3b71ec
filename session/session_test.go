package session_test

import (
	"testing"

	"github.com/tenure-dev/tenure/session"
)

// Goal: the granted timeout is the asked one clamped into the server's range.
// Method: the table of the reported case.
func TestC027NegotiateClamps(t *testing.T) {
	const minMs, maxMs = 4000, 40000
	for _, c := range []struct{ asked, want int32 }{
		{0, 4000}, {-1, 4000}, {-1 << 31, 4000}, {1, 4000}, {3999, 4000}, {4000, 4000},
		{5000, 5000}, {40000, 40000}, {40001, 40000}, {1<<31 - 1, 40000},
	} {
		if got := session.Negotiate(c.asked, minMs, maxMs); got != c.want {
			t.Errorf("Negotiate(%d, %d, %d) = %d, want %d", c.asked, minMs, maxMs, got, c.want)
		}
	}
}

// Goal: ids print as in ZooKeeper's tools, also those with the top bit set.
// Method: a table.
func TestIDString(t *testing.T) {
	for _, c := range []struct {
		id   session.ID
		want string
	}{{0, "0x0"}, {0x10000002a, "0x10000002a"}, {-1, "0xffffffffffffffff"}} {
		if got := c.id.String(); got != c.want {
			t.Errorf("ID(%d).String() = %q, want %q", int64(c.id), got, c.want)
		}
	}
}
