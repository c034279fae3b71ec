package server

import (
	"strconv"
	"sync"
)

// digestEvery is at which entries members note the digest of their state, to be compared:
// so often that a fault is noticed soon, and so seldom that members which lag by seconds
// still have some in common.
const digestEvery = 1024

// digestsKept bounds how many are kept.
const digestsKept = 32

// DigestAt is the digest of the state behind an entry of the log. Equal on all members.
type DigestAt struct {
	Index  uint64 `json:"index"`
	Digest string `json:"digest"` // hexadecimal
}

// digests are those that a member has noted. Safe for concurrent use; the zero value is
// ready.
type digests struct {
	mu struct {
		sync.Mutex
		latest struct{ index, digest uint64 }
		marks  []DigestAt // of every digestEvery-th entry, ascending
	}
}

// note takes the digest behind an entry. Called in their order, by apply and where a received
// state takes the present one's place.
func (d *digests) note(index, digest uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.latest.index, d.mu.latest.digest = index, digest
	if index%digestEvery != 0 {
		return
	}
	if len(d.mu.marks) == digestsKept {
		d.mu.marks = append(d.mu.marks[:0], d.mu.marks[1:]...)
	}
	d.mu.marks = append(d.mu.marks, DigestAt{index, formatDigest(digest)})
}

// list returns all that were noted, the newest last.
func (d *digests) list() []DigestAt {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := append([]DigestAt(nil), d.mu.marks...)
	if l := d.mu.latest; l.index%digestEvery != 0 {
		list = append(list, DigestAt{l.index, formatDigest(l.digest)})
	}
	return list
}

func formatDigest(digest uint64) string { return strconv.FormatUint(digest, 16) }

// differ returns the first entry behind which two members have noted different digests,
// 0 if there is none.
func differ(a, b []DigestAt) uint64 {
	at := make(map[uint64]string, len(a))
	for _, d := range a {
		at[d.Index] = d.Digest
	}
	for _, d := range b {
		if other, both := at[d.Index]; both && other != d.Digest {
			return d.Index
		}
	}
	return 0
}
