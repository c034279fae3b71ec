package server

import "github.com/tenure-dev/tenure/znode"

// excessEvery is how often one limit of a quota is logged, in nanoseconds: use that goes
// up and down around a limit is one story.
const excessEvery = int64(60e9)

// excessesKept bounds how many limits are remembered; beyond it all are forgotten.
const excessesKept = 1000

// excessLog warns of quotas that were exceeded without anything being refused. Apply only.
type excessLog struct {
	told map[excessKey]int64 // when each was last logged
}

type excessKey struct{ path, limit string }

// log warns of each excess that was not logged lately. A use that stays above its limit is
// no further excess.
func (l *excessLog) log(s *Server, list []znode.Excess) {
	for _, x := range list {
		key, now := excessKey{x.Path, x.Limit}, s.now()
		if at, ok := l.told[key]; ok && now-at < excessEvery {
			continue
		}
		if l.told == nil || len(l.told) >= excessesKept {
			l.told = map[excessKey]int64{}
		}
		l.told[key] = now
		s.log.Warn("quota exceeded, nothing refused", "path", x.Path, "limit", x.Limit, "used", x.Used, "max", x.Max)
	}
}
