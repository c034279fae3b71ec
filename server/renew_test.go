package server

import (
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/session"
)

// Goal: renewals of members of this release are read by the next. Method: bytes written by
// hand, decoded and encoded again.
func TestRenewalBytes(t *testing.T) {
	for text, list := range map[string][]renewal{
		"00":                            {},
		"0101 00":                       {{1, 0}},
		"03 05 ac02 0101 80808080 1003": {{5, 300}, {6, 1}, {6 + 1<<32, 3}},
		"01 ffffffffffffffff7f ffffffffffffffffff01": {{math.MaxInt64, math.MaxUint64}},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := appendRenewals(nil, list); !slices.Equal(got, b) {
			t.Errorf("%v: %x, want %x", list, got, b)
		}
		if got, err := decodeRenewals(b); err != nil || !slices.Equal(got, list) {
			t.Errorf("%s: %v (%v), want %v", text, got, err, list)
		}
	}
}

// Goal: whatever a peer sends costs no more memory than it is long, several times over, and
// what is wrong is refused with its place. Method: one broken rule each, and every prefix.
func TestRenewalsOfABrokenPeer(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "there are not 0 in 0 bytes",
		"80":                            "in 1 bytes",
		"02 0101 01":                    "there are not 2 in 3 bytes",
		"ffffffffffffffff7f0101":        "there are not 9223372036854775807 in 2 bytes",
		"01 0001":                       "number 0 of 1, at byte 1, is no session above 0x0",
		"02 0101 0001":                  "number 1 of 2, at byte 3, is no session above 0x1",
		"01 80808080808080808001 01":    "number 0 of 1",
		"02 ffffffffffffffff7f 01 0101": "number 1 of 2",
		"01 0101 00":                    "1 bytes behind the last",
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeRenewals(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", text, got, err, want)
		}
	}
	whole := appendRenewals(nil, []renewal{{5, 300}, {1 << 40, 1 << 20}})
	for n := range whole {
		if got, err := decodeRenewals(whole[:n]); err == nil {
			t.Errorf("%x of %x: %v", whole[:n], whole, got)
		}
	}
}

// Goal: decoding takes any bytes, and what it takes survives a second time.
// Method: random bytes around true renewals.
func FuzzRenewals(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		var list []renewal
		for id := session.ID(1); r.IntN(4) > 0; id += session.ID(1 + r.IntN(1<<20)) {
			list = append(list, renewal{id, r.Uint64() >> r.IntN(64)})
		}
		f.Add(appendRenewals(nil, list))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeRenewals(b)
		if err != nil {
			return
		}
		if again, err := decodeRenewals(appendRenewals(nil, list)); err != nil || !slices.Equal(again, list) {
			t.Fatalf("%x: %v became %v (%v)", b, list, again, err)
		}
	})
}
