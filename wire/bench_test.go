package wire

import (
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

var benchData = make([]byte, 100)

var benchRequests = map[string]*Request{
	"create": {Xid: 7, Seq: 9, Acked: 8, Op: OpCreate, Body: &znode.Create{Path: "/bench/node-0000000001", Data: benchData, ACL: znode.OpenACL}},
	"set":    {Xid: 7, Seq: 9, Acked: 8, Op: OpSetData, Body: &znode.SetData{Path: "/bench/node-0000000001", Data: benchData, Version: -1}},
	"get":    {Xid: 7, Op: OpGetData, Body: &PathWatch{Path: "/bench/node-0000000001"}},
}

var benchReplies = map[string]*Reply{
	"create": {Xid: 7, Zxid: 1 << 32, Op: OpCreate, Body: &znode.Result{Kind: znode.ResultCreate, Path: "/bench/node-0000000001"}},
	"set":    {Xid: 7, Zxid: 1 << 32, Op: OpSetData, Body: &znode.Result{Kind: znode.ResultSetData, Stat: goldenStat}},
	"get":    {Xid: 7, Zxid: 1 << 32, Op: OpGetData, Body: &DataReply{Data: benchData, Stat: goldenStat}},
}

func BenchmarkRequest(b *testing.B) {
	for _, codecName := range []string{"jute", "json"} {
		c := codecs[codecName]
		for _, op := range []string{"create", "set", "get"} {
			q := benchRequests[op]
			msg := c.AppendRequest(nil, q)
			b.Run(codecName+"/"+op+"/encode", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					msg = c.AppendRequest(msg[:0], q)
				}
			})
			b.Run(codecName+"/"+op+"/decode", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.DecodeRequest(msg); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkReply(b *testing.B) {
	for _, codecName := range []string{"jute", "json"} {
		c := codecs[codecName]
		for _, op := range []string{"create", "set", "get"} {
			p := benchReplies[op]
			msg := c.AppendReply(nil, p)
			opOf := func(int32) (Op, bool) { return p.Op, true }
			b.Run(codecName+"/"+op+"/encode", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					msg = c.AppendReply(msg[:0], p)
				}
			})
			b.Run(codecName+"/"+op+"/decode", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := c.DecodeMessage(msg, opOf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkEntry(b *testing.B) {
	var parts [][]byte
	p := Proposal{Origin: 1 << 63, ID: 1000, Txn: znode.Txn{
		Session: 1 << 33, Seq: 9, Acked: 8, Auth: []znode.Identity{{Scheme: "ip", ID: "127.0.0.1"}},
		Op: benchRequests["create"].Body.(znode.Op),
	}}
	for range 64 {
		parts = append(parts, AppendProposal(nil, &p))
	}
	entry := AppendEntry(nil, znode.Stamp{TimeMs: 1_800_000_000_000}, parts)
	b.Run("proposal/encode", func(b *testing.B) {
		b.ReportAllocs()
		var dst []byte
		for b.Loop() {
			dst = AppendProposal(dst[:0], &p)
		}
	})
	b.Run("64 creates/decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := DecodeEntry(entry); err != nil {
				b.Fatal(err)
			}
		}
	})
}
