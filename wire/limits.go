package wire

import "github.com/tenure-dev/tenure/znode"

// replyOverhead is what the reply to OpGetData has besides the data: header, length, Stat.
const replyOverhead = 16 + 4 + statSize

// DataMax is how much data a znode may get where messages have at most so many bytes: so
// much that a client with the same limit can read it back, whatever the path.
func DataMax(message int64) int64 { return message - replyOverhead }

// LargestData is the size of the largest piece of data that a request stores, in bytes.
func LargestData(body any) (size int64) {
	switch b := body.(type) {
	case *znode.Create:
		return int64(len(b.Data))
	case *znode.SetData:
		return int64(len(b.Data))
	case *znode.Multi:
		for _, op := range b.Ops {
			size = max(size, LargestData(op))
		}
	}
	return size
}
