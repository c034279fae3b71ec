package tests

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// chaosFault begins a fault and returns what it did and how to end it.
type chaosFault func(r *chaosRun) (what string, end func())

// chaosFaults are all faults by name, each as often as its weight.
var chaosFaults = map[string]struct {
	weight int
	begin  chaosFault
}{
	"kill -9":         {4, (*chaosRun).killOne},
	"kill -9 several": {2, (*chaosRun).killSeveral},
	"stop in order":   {2, (*chaosRun).stopOne},
	"pause":           {3, (*chaosRun).pauseOne},
	"cut off":         {3, (*chaosRun).cutOff},
	"one-way":         {2, (*chaosRun).oneWay},
	"bridge":          {2, (*chaosRun).bridge},
	"reset":           {2, (*chaosRun).resetLinks},
	"slow links":      {2, (*chaosRun).slowLinks},
	"slow disk":       {2, (*chaosRun).slowDisk},
	"hanging disk":    {1, (*chaosRun).hangDisk},
	"failing disk":    {1, (*chaosRun).failDisk},
}

const (
	chaosFaultMax = 4 * time.Second // how long a fault lasts, and one in six twice as long
	chaosGapMax   = time.Second     // without faults between two
	// chaosLeaderMax bounds how long the ensemble may be without a leader after a fault.
	chaosLeaderMax = 10 * time.Second
)

// faults plays faults for about that long and ends them all.
func (r *chaosRun) faults(length time.Duration) {
	names := slices.Sorted(maps.Keys(chaosFaults))
	var hat []string
	for _, name := range names {
		hat = append(hat, slices.Repeat([]string{name}, chaosFaults[name].weight)...)
	}
	for began := time.Now(); time.Since(began) < length && !r.t.Failed(); {
		r.busy = map[*ensembleMember]bool{}
		lasts := upTo(r.rng, chaosFaultMax)
		if r.rng.IntN(6) == 0 {
			lasts *= 2
		}
		var ends []func()
		for n := 1 + r.rng.IntN(3)/2; n > 0 && len(r.busy) < len(r.e.members); n-- {
			name := hat[r.rng.IntN(len(hat))]
			what, end := chaosFaults[name].begin(r)
			r.t.Logf("%v: %s of %s for %v", time.Now().Format("15:04:05.000"), name, what, lasts)
			r.played[name]++
			ends = append(ends, end)
		}
		<-time.After(min(lasts, length))
		for _, end := range slices.Backward(ends) {
			end()
		}
		r.recover()
		pauseUpTo(r.rng, chaosGapMax)
	}
}

// recover waits until all members serve again.
func (r *chaosRun) recover() {
	for _, m := range r.e.members {
		if r.busy[m] {
			m.await()
		}
	}
	r.e.eventually(chaosLeaderMax, "a leader after faults", func() error {
		if r.e.leader() == nil {
			return fmt.Errorf("nobody leads")
		}
		return nil
	})
}

// target chooses a member to which nothing happens yet: the leader every second time.
func (r *chaosRun) target() *ensembleMember {
	var free []*ensembleMember
	for _, m := range r.e.members {
		if !r.busy[m] {
			free = append(free, m)
		}
	}
	m := free[r.rng.IntN(len(free))]
	if leader := r.e.leader(); r.rng.IntN(2) == 0 && leader != nil && !r.busy[leader] {
		m = leader
	}
	r.busy[m] = true
	return m
}

// name tells which member it is, and whether it leads.
func (r *chaosRun) name(m *ensembleMember) string {
	if r.e.leader() == m {
		return fmt.Sprintf("member %d, the leader,", m.id)
	}
	return fmt.Sprintf("member %d", m.id)
}

func (r *chaosRun) killOne() (string, func()) {
	m := r.target()
	what := r.name(m)
	m.kill()
	return what, m.spawn
}

// killSeveral kills two or all, at once or nearly so.
func (r *chaosRun) killSeveral() (string, func()) {
	if len(r.busy) > 0 {
		return r.killOne()
	}
	victims := slices.Clone(r.e.members)
	r.rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	victims = victims[:2+r.rng.IntN(2)]
	for _, m := range victims {
		r.busy[m] = true
		m.kill()
		pauseUpTo(r.rng, 50*time.Millisecond)
	}
	return fmt.Sprintf("%d members", len(victims)), func() {
		for _, m := range victims {
			m.spawn()
		}
	}
}

func (r *chaosRun) stopOne() (string, func()) {
	m := r.target()
	what := r.name(m)
	m.stop()
	return what, m.spawn
}

func (r *chaosRun) pauseOne() (string, func()) {
	m := r.target()
	what := r.name(m)
	m.pause()
	return what, m.resume
}

func (r *chaosRun) cutOff() (string, func()) {
	m := r.target()
	r.e.links.isolate(m.id, linkHeld)
	return r.name(m), func() { r.e.links.isolate(m.id, linkOpen) }
}

func (r *chaosRun) oneWay() (string, func()) {
	m := r.target()
	if r.rng.IntN(2) == 0 {
		r.e.links.mute(m.id, linkHeld)
		return "what is sent by " + r.name(m), func() { r.e.links.mute(m.id, linkOpen) }
	}
	r.e.links.deafen(m.id, linkHeld)
	return "what is sent to " + r.name(m), func() { r.e.links.deafen(m.id, linkOpen) }
}

// bridge separates two members that both reach the third.
func (r *chaosRun) bridge() (string, func()) {
	third := r.target()
	pair := r.e.others(third)
	set := func(s linkState) {
		r.e.links.set(pair[0].id, pair[1].id, func(l *link) { l.state = s })
		r.e.links.set(pair[1].id, pair[0].id, func(l *link) { l.state = s })
	}
	set(linkHeld)
	return r.name(third), func() { set(linkOpen) }
}

func (r *chaosRun) resetLinks() (string, func()) {
	m := r.target()
	r.e.links.isolate(m.id, linkCut)
	return r.name(m), func() { r.e.links.isolate(m.id, linkOpen) }
}

func (r *chaosRun) slowLinks() (string, func()) {
	m := r.target()
	delay, jitter := upTo(r.rng, 50*time.Millisecond), upTo(r.rng, 200*time.Millisecond)
	r.e.links.slow(m.id, delay, jitter)
	return fmt.Sprintf("%s by %v to %v", r.name(m), delay, delay+jitter), func() { r.e.links.slow(m.id, 0, 0) }
}

func (r *chaosRun) slowDisk() (string, func()) {
	m := r.target()
	delay := upTo(r.rng, 400*time.Millisecond)
	m.disk(fmt.Sprintf("log sync %v", delay))
	return fmt.Sprintf("%s by %v", r.name(m), delay), func() { m.disk() }
}

func (r *chaosRun) hangDisk() (string, func()) {
	m := r.target()
	m.disk("log sync 1m", "log write 1m")
	return r.name(m), func() { m.disk() }
}

// failDisk fails a disk, of which the member's process must die or not notice; then it is
// killed and comes back with a sound disk.
func (r *chaosRun) failDisk() (string, func()) {
	m := r.target()
	what := r.name(m)
	m.disk("log " + []string{"sync EIO", "write EIO", "write ENOSPC"}[r.rng.IntN(3)])
	return what, func() {
		m.kill()
		m.disk()
		m.spawn()
	}
}
