package recipes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// entry is one place in a line, as the name of its znode tells it: kind-guid-sequence,
// where a kind of slots has a number of them.
type entry struct {
	name   string
	kind   byte
	weight int // slots, 1 for other kinds
	guid   string
	seq    int32
}

// The kinds of places.
const (
	kindExclusive = 'x' // election, mutex
	kindReader    = 'r'
	kindWriter    = 'w'
	kindSlots     = 's' // semaphore
)

const (
	guidLength = 32
	numberSize = 10 // digits of a sequence number that is not negative
)

// prefix is the name of a place without the number that the store appends.
func prefix(kind byte, weight int, guid string) string {
	if kind == kindSlots {
		return fmt.Sprintf("%c%d-%s-", kind, weight, guid)
	}
	return fmt.Sprintf("%c-%s-", kind, guid)
}

// parseEntry accepts the exact pattern alone: whatever else lies in the directory is not
// ours. The number may be negative: ZooKeeper's counter is an int32 that wraps.
func parseEntry(name string) (entry, bool) {
	head, rest, ok := strings.Cut(name, "-")
	if !ok || head == "" || len(rest) < guidLength+1+numberSize || rest[guidLength] != '-' {
		return entry{}, false
	}
	e := entry{name: name, kind: head[0], weight: 1, guid: rest[:guidLength]}
	if strings.Trim(e.guid, "0123456789abcdef") != "" || !strings.ContainsRune("xrws", rune(e.kind)) {
		return entry{}, false
	}
	if weight := head[1:]; e.kind == kindSlots {
		n, err := strconv.Atoi(weight)
		if err != nil || n < 1 || n > SlotsMax || strconv.Itoa(n) != weight {
			return entry{}, false
		}
		e.weight = n
	} else if weight != "" {
		return entry{}, false
	}
	number := rest[guidLength+1:]
	seq, err := strconv.ParseInt(number, 10, 32)
	if err != nil || number[0] == '+' || number[0] != '-' && len(number) != numberSize {
		return entry{}, false
	}
	e.seq = int32(seq)
	return e, true
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
	// excluded reports whether former holders that may still believe keep it out. Of a
	// holder that is not known the kind is 0.
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

// readWrite lets readers hold together: a reader waits for the nearest writer before it,
// a writer for whatever is before it.
type readWrite struct{}

func (readWrite) waits(line []entry, me, _ int) (bool, int) {
	if line[me].kind == kindWriter {
		return me > 0, me - 1
	}
	for i := me - 1; i >= 0; i-- {
		if line[i].kind != kindReader {
			return true, i
		}
	}
	return false, 0
}

func (readWrite) excluded(line []entry, me, _ int, ghosts []entry) bool {
	return slices.ContainsFunc(ghosts, func(g entry) bool {
		return line[me].kind == kindWriter || g.kind != kindReader
	})
}

func (readWrite) handsOver() bool { return false }

// slotted lets the places hold that together have at most so many slots, in order.
type slotted struct{}

// waits: a place near the front waits for any change. One further back cannot be admitted
// while there is a place with as many slots as there are between it and this one, unless
// those between give up.
func (slotted) waits(line []entry, me, slots int) (bool, int) {
	if weigh(line[:me+1]) <= slots {
		return false, 0
	}
	if me == 0 || weigh(line[:me+1]) <= 2*slots {
		return true, -1
	}
	on := me - 1
	for between := 0; on > 0 && between+line[on].weight < slots; on-- {
		between += line[on].weight
	}
	return true, on
}

func (slotted) excluded(line []entry, me, slots int, ghosts []entry) bool {
	return weigh(line[:me+1])+weigh(ghosts) > slots
}

func (slotted) handsOver() bool { return false }

func weigh(line []entry) (slots int) {
	for _, e := range line {
		slots += e.weight
	}
	return slots
}
