package wire

import "github.com/tenure-dev/tenure/znode"

// entryVersion is the first byte of every log entry.
const entryVersion formatVersion = 1

// The bits of znode.Rules in an entry.
const (
	ruleNoTTL = 1 << iota
	ruleEnforceQuota
	ruleFull
	rulesAll = ruleNoTTL | ruleEnforceQuota | ruleFull
)

// AppendEntry appends the persistent form of one log entry: the leader's stamp and, in
// their order, the transactions that it is for, each as AppendProposal made it.
func AppendEntry(dst []byte, s znode.Stamp, proposals [][]byte) []byte {
	var rules byte
	if s.Rules.NoTTL {
		rules |= ruleNoTTL
	}
	if s.Rules.EnforceQuota {
		rules |= ruleEnforceQuota
	}
	if s.Rules.Full {
		rules |= ruleFull
	}
	dst = recInt(append(dst, byte(entryVersion), rules), s.TimeMs)
	dst = recUint(dst, uint64(len(proposals)))
	for _, p := range proposals {
		dst = append(recUint(dst, uint64(len(p))), p...)
	}
	return dst
}

// DecodeEntry decodes a log entry. It decodes all of it before it returns any, so that
// an entry is applied whole or not at all. Nothing that it returns aliases data. Lists
// may be shared and must not be changed: an access list that is open to everybody is
// znode.OpenACL itself, and equal identities of neighbours are one list. An error names the offset in data and means that data is not what
// AppendEntry made.
func DecodeEntry(data []byte) (znode.Stamp, []Proposal, error) {
	r := recordReader{buf: data}
	entryVersion.read(&r)
	rules := r.byte()
	if rules&^rulesAll != 0 {
		r.off--
		r.fail("unknown bits in the rules", rules)
	}
	s := znode.Stamp{TimeMs: r.int(), Rules: znode.Rules{
		NoTTL: rules&ruleNoTTL != 0, EnforceQuota: rules&ruleEnforceQuota != 0, Full: rules&ruleFull != 0,
	}}
	proposals := make([]Proposal, r.count(1+proposalSizeMin))
	for i := range proposals {
		end := r.count(1) + r.off
		if r.err != nil {
			break
		}
		// The proposal reads within its own bytes, with offsets in the entry.
		r.buf = data[:end]
		r.proposal(&proposals[i])
		if r.err == nil && r.off != end {
			r.fail("bytes behind the proposal", end-r.off)
		}
		r.buf = data
	}
	if err := r.done("log entry"); err != nil {
		return znode.Stamp{}, nil, err
	}
	return s, proposals, nil
}
