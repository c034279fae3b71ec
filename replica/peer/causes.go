package peer

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// The bounds of what is logged: a cause once per period, and not more than this many
// causes, however many a stranger makes up.
const (
	causesPeriod = time.Minute
	causesMax    = 64
)

// causes keeps what fails over and over from filling the log. The zero value is ready;
// it is safe for concurrent use.
type causes struct {
	mu   sync.Mutex
	told map[string]time.Time
}

// tell calls say unless the same was told of the same member within the last minute.
// Errors that differ in decimal digits only are the same: they have changing ports.
func (c *causes) tell(member uint64, err error, say func()) {
	text := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '#'
		}
		return r
	}, err.Error())
	if c.isNew(fmt.Sprint(member, text), time.Now()) {
		say()
	}
}

func (c *causes) isNew(cause string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.told[cause]; ok && now.Sub(at) < causesPeriod {
		return false
	}
	if len(c.told) >= causesMax {
		for old, at := range c.told {
			if now.Sub(at) >= causesPeriod {
				delete(c.told, old)
			}
		}
		if len(c.told) >= causesMax {
			return false
		}
	}
	if c.told == nil {
		c.told = map[string]time.Time{}
	}
	c.told[cause] = now
	return true
}
