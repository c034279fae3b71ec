package server

import (
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/wire"
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

// oversized judges the data in a request: "" or what is wrong.
func (c *Config) oversized(q *wire.Request) string {
	if size, limit := wire.LargestData(q.Body), wire.DataMax(c.MaxMessageBytes); size > limit {
		return fmt.Sprintf("%d bytes of data: a znode holds at most %d (max-message-bytes less a reply's header)", size, limit)
	}
	return ""
}
