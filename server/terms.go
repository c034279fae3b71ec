package server

import (
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// terms are what a door promises to its clients beyond its framing.
type terms struct {
	// minTimeout and maxTimeout bound what sessions negotiate.
	minTimeout, maxTimeout time.Duration
	// localReads answers reads from this member's state as it is, in the session's order,
	// as ZooKeeper promises and no more; only a sync waits for what others had acknowledged.
	localReads bool
	// replyLimit bounds the message of a read's reply, in bytes.
	replyLimit int64
}

// The two doors' terms.
func nativeTerms(c *Config) terms {
	return terms{minTimeout: c.MinSessionTimeout, maxTimeout: c.MaxSessionTimeout,
		replyLimit: c.MaxMessageBytes*4/3 + 8192} // JSON needs more for the same reply
}

func zkTerms(c *Config) terms {
	return terms{minTimeout: c.ZKMinSessionTimeout, maxTimeout: c.ZKMaxSessionTimeout,
		localReads: true, replyLimit: c.ZKMaxReplyBytes}
}

// replyOverhead is what the reply to OpGetData has besides the data: header, length, Stat.
const replyOverhead = 16 + 4 + 68

// dataMax is how much data a znode may get: so much that a client whose limit is
// max-message-bytes, too, can read it, whatever the path.
func (c *Config) dataMax() int { return int(c.MaxMessageBytes) - replyOverhead }

// oversized judges the data in a request: "" or what is wrong.
func (c *Config) oversized(q *wire.Request) string {
	var size int
	switch b := q.Body.(type) {
	case *znode.Multi:
		for _, op := range b.Ops {
			size = max(size, dataBytes(op))
		}
	case znode.Op:
		size = dataBytes(b)
	}
	if limit := c.dataMax(); size > limit {
		return fmt.Sprintf("%d bytes of data: a znode holds at most %d (max-message-bytes less a reply's header)", size, limit)
	}
	return ""
}

// dataBytes is the size of the data that one operation stores.
func dataBytes(op znode.Op) int {
	switch op := op.(type) {
	case *znode.Create:
		return len(op.Data)
	case *znode.SetData:
		return len(op.Data)
	}
	return 0
}
