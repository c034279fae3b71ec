package wire

import "github.com/tenure-dev/tenure/znode"

// Proposal is one transaction as it rides in a log entry: a Txn with the address of
// whoever waits for its result.
type Proposal struct {
	// Origin is a number that the proposing process drew at its start, so that a
	// replay after a restart wakes nobody. ID is the process's own number.
	Origin, ID uint64
	Txn        znode.Txn
}

// Entry is one log entry: the leader's stamp and the transactions that it orders.
//
//	func AppendProposal(dst []byte, p *Proposal) []byte
//	func AppendEntry(dst []byte, s znode.Stamp, proposals [][]byte) []byte
//	func DecodeEntry(data []byte) (znode.Stamp, iterator over Proposal, error)
