package wire

import (
	"fmt"

	"github.com/tenure-dev/tenure/znode"
)

// ZooKeeper is Jute as ZooKeeper itself has it: Tenure's own operations are as unknown as
// any other. It has no state and may be used by any number of goroutines.
type ZooKeeper struct{ Jute }

var _ ServerCodec = ZooKeeper{}

// DecodeRequest decodes one request of a ZooKeeper client. Bytes behind its record are
// ignored.
func (ZooKeeper) DecodeRequest(msg []byte) (Request, error) {
	r := juteReader{buf: msg}
	xid, op := r.int(), Op(r.int())
	if op >= OpWith {
		return Request{Xid: xid, Op: op, Err: znode.Unimplemented,
			Detail: fmt.Sprintf("%d is not an operation of ZooKeeper", op)}, nil
	}
	return Jute{}.DecodeRequest(msg)
}
