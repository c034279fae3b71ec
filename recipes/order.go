package recipes

import (
	"slices"
	"strconv"
	"strings"
)

// entry is one place in a line, as the name of its znode tells it: kind-guid-sequence.
type entry struct {
	name string
	kind byte
	guid string
	seq  int32
}

// The kinds of places.
const (
	kindExclusive = 'x' // election, mutex
	kindReader    = 'r'
	kindWriter    = 'w'
	kindSlot      = 's' // semaphore
)

const guidLength = 32

// prefix is the name of a place without the number that the store appends.
func prefix(kind byte, guid string) string { return string(kind) + "-" + guid + "-" }

// parseEntry accepts the exact pattern alone: whatever else lies in the directory is not
// ours. The number is ten digits, or negative after an overflow (ZOOKEEPER's counter is
// an int32 that wraps).
func parseEntry(name string) (entry, bool) {
	const numberAt = 2 + guidLength + 1
	if len(name) < numberAt+10 || name[1] != '-' || name[numberAt-1] != '-' {
		return entry{}, false
	}
	guid, number := name[2:numberAt-1], name[numberAt:]
	if !strings.ContainsRune("xrws", rune(name[0])) || strings.Trim(guid, "0123456789abcdef") != "" {
		return entry{}, false
	}
	if number[0] != '-' && len(number) != 10 {
		return entry{}, false
	}
	seq, err := strconv.ParseInt(number, 10, 32)
	if err != nil || number[0] == '+' {
		return entry{}, false
	}
	return entry{name: name, kind: name[0], guid: guid, seq: int32(seq)}, true
}

// compare orders by the number alone, in serial arithmetic: right while all live places
// lie within 2^31 numbers, also across the overflow.
func (e entry) compare(other entry) int { return int(e.seq - other.seq) }

// parseLine returns the places among names, in the order of their creation.
func parseLine(names []string) []entry {
	line := make([]entry, 0, len(names))
	for _, name := range names {
		if e, ok := parseEntry(name); ok {
			line = append(line, e)
		}
	}
	slices.SortFunc(line, entry.compare)
	return line
}

// indexOf returns where name is in the line, -1 if it is not.
func indexOf(line []entry, name string) int {
	return slices.IndexFunc(line, func(e entry) bool { return e.name == name })
}

// discipline is who of a line may hold together. Implementations are plain values.
type discipline interface {
	// waits reports whether the place at index me must wait, and for which other place's
	// end; -1 is any change of the line.
	waits(line []entry, me, slots int) (wait bool, on int)
	// excluded reports whether former holders that may still believe keep it out.
	excluded(line []entry, me, slots int, ghosts []entry) bool
	// handsOver reports whether a place that waits for a holder is the only next one.
	handsOver() bool
}

// exclusive lets the lowest place hold, alone: each waits for the one before it, so that
// an end wakes one.
type exclusive struct{}

func (exclusive) waits(_ []entry, me, _ int) (bool, int)            { return me > 0, me - 1 }
func (exclusive) excluded(_ []entry, _, _ int, ghosts []entry) bool { return len(ghosts) > 0 }
func (exclusive) handsOver() bool                                   { return true }
