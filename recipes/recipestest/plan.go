package recipestest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verb is a fault of a Plan.
type Verb uint8

// The verbs: what is in Peer under the same name, and Restart of the Harness. Those that
// last end by themselves after Step.For.
const (
	VerbCutAfterCommit Verb = iota + 1
	VerbCutBeforeSend
	VerbHold
	VerbBreak
	VerbPartition
	VerbDelay
	VerbExpire
	VerbMove
	VerbLag
	VerbIsolate
	VerbFailSetWatches
	VerbJumpWall // by Step.Amount
	VerbPause
	VerbRestart
	VerbMute
	verbs // how many there are, and one
)

var verbNames = [verbs]string{"none", "cutAfterCommit", "cutBeforeSend", "hold", "break", "partition", "delay", "expire",
	"move", "lag", "isolate", "failSetWatches", "jumpWall", "pause", "restart", "mute"}

// String returns the verb's name in a Plan's line.
func (v Verb) String() string {
	if v >= verbs {
		return "verb " + strconv.Itoa(int(v))
	}
	return verbNames[v]
}

var kindNames = [...]string{"none", "create", "set", "delete", "multi", "anyWrite", "get", "children", "exists", "renew", "sync"}

// String returns the kind's name.
func (k OpKind) String() string {
	if int(k) >= len(kindNames) {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// hasKind reports whether the verb plays on one kind of request.
func (v Verb) hasKind() bool { return v <= VerbHold }

// hasAmount reports whether the verb takes Step.Amount.
func (v Verb) hasAmount() bool { return v == VerbDelay || v == VerbLag || v == VerbJumpWall }

// lasts reports whether the verb takes Step.For.
func (v Verb) lasts() bool {
	switch v {
	case VerbHold, VerbPartition, VerbDelay, VerbLag, VerbIsolate, VerbPause, VerbRestart, VerbMute:
		return true
	}
	return false
}

// Step is one fault. A plain value.
type Step struct {
	At     time.Duration // after the beginning
	Peer   int           // index; of VerbRestart without meaning
	Verb   Verb
	Kind   OpKind        // of those that play on a request
	For    time.Duration // of those that last; of a hold counted from when it was armed
	Amount time.Duration // of VerbDelay, VerbLag and VerbJumpWall
}

// String returns the step as in a Plan's line.
func (s Step) String() string {
	var args []string
	if s.Verb.hasKind() {
		args = append(args, s.Kind.String())
	}
	if s.Verb.hasAmount() {
		args = append(args, s.Amount.String())
	}
	if s.Verb.lasts() {
		args = append(args, s.For.String())
	}
	return fmt.Sprintf("%v:%d.%v(%s)", s.At, s.Peer, s.Verb, strings.Join(args, ","))
}

// Plan is a list of faults in the order of time. A plain value that shares Steps.
type Plan struct {
	Seed  uint64
	Steps []Step
}

// String returns the plan in one line, which ParsePlan reads.
func (p Plan) String() string {
	words := []string{"seed=" + strconv.FormatUint(p.Seed, 10)}
	for _, s := range p.Steps {
		words = append(words, s.String())
	}
	return strings.Join(words, " ")
}

// Length returns how long the plan takes until all faults have ended.
func (p Plan) Length() (d time.Duration) {
	for _, s := range p.Steps {
		d = max(d, s.At+s.For)
	}
	return d
}

// PlanOptions says what NewPlan chooses from. The zero value of a field means its
// default.
type PlanOptions struct {
	Peers   int           // default 1
	Length  time.Duration // until the last fault begins, default 1 min
	MeanGap time.Duration // between the beginnings of faults, default 1 s
	// Longest is the most that a fault lasts, and that JumpWall jumps either way; default 5 s. Faults are
	// mostly shorter. Delays and lags are a tenth of it at most.
	Longest time.Duration
	// Verbs are chosen from, default Break; Verbs returns those that there are. Before a
	// Mute answers are delayed, so that late ones arrive while nothing can be asked.
	Verbs []Verb
}

// NewPlan returns a random plan: the same for the same arguments.
func NewPlan(seed uint64, o PlanOptions) Plan {
	setDefault(&o.Peers, 1)
	setDefault(&o.Length, time.Minute)
	setDefault(&o.MeanGap, time.Second)
	setDefault(&o.Longest, 5*time.Second)
	if len(o.Verbs) == 0 {
		o.Verbs = []Verb{VerbBreak}
	}
	rng := rand.New(rand.NewPCG(seed, 0x506c616e))
	round := func(d time.Duration) time.Duration { return max(d.Round(time.Millisecond), time.Millisecond) }
	p := Plan{Seed: seed}
	for at := time.Duration(0); ; {
		at += round(time.Duration(rng.ExpFloat64() * float64(o.MeanGap)))
		if at > o.Length {
			return p
		}
		s := Step{At: at, Peer: rng.IntN(o.Peers), Verb: o.Verbs[rng.IntN(len(o.Verbs))]}
		// Squared: short faults are where races are.
		some := func(most time.Duration) time.Duration {
			x := rng.Float64()
			return round(time.Duration(x * x * float64(most)))
		}
		if s.Verb.hasKind() {
			s.Kind = Create + OpKind(rng.IntN(int(Sync)))
		}
		if s.Verb.lasts() {
			s.For = some(o.Longest)
		}
		switch {
		case s.Verb == VerbMute:
			s.For = o.Longest // shorter than a session it shows nothing
			lead := some(o.Longest / 5)
			p.Steps = append(p.Steps, Step{At: at, Peer: s.Peer, Verb: VerbDelay, For: lead + s.For,
				Amount: round(time.Duration(rng.Float64() * float64(o.Longest/10)))})
			at += lead
			s.At = at
		case s.Verb == VerbJumpWall:
			s.Amount = some(o.Longest) * time.Duration(1-2*rng.IntN(2))
		case s.Verb.hasAmount():
			s.Amount = some(o.Longest / 10)
		}
		p.Steps = append(p.Steps, s)
	}
}

// Verbs returns the verbs that h and p have.
func Verbs(h Harness, p *Peer) (has []Verb) {
	for v, ok := range [verbs]bool{
		VerbCutAfterCommit: p.CutAfterCommit != nil, VerbCutBeforeSend: p.CutBeforeSend != nil, VerbHold: p.Hold != nil,
		VerbBreak: p.Break != nil, VerbPartition: p.Partition != nil && p.Heal != nil, VerbDelay: p.Delay != nil,
		VerbExpire: p.Expire != nil, VerbMove: p.Move != nil, VerbLag: p.Lag != nil,
		VerbIsolate: p.Isolate != nil && p.Rejoin != nil, VerbFailSetWatches: p.FailSetWatches != nil,
		VerbJumpWall: p.JumpWall != nil, VerbPause: p.Pause != nil, VerbRestart: h.Restart != nil,
		VerbMute: p.Mute != nil && p.Unmute != nil,
	} {
		if ok {
			has = append(has, Verb(v))
		}
	}
	return has
}

// ParsePlan reads what Plan.String wrote.
func ParsePlan(line string) (p Plan, err error) {
	for _, word := range strings.Fields(line) {
		if seed, ok := strings.CutPrefix(word, "seed="); ok {
			p.Seed, err = strconv.ParseUint(seed, 10, 64)
		} else {
			var s Step
			s, err = parseStep(word)
			p.Steps = append(p.Steps, s)
		}
		if err != nil {
			return Plan{}, fmt.Errorf("recipestest: plan: %q: %w", word, err)
		}
	}
	return p, nil
}

// parseStep reads at:peer.verb(args).
func parseStep(word string) (s Step, err error) {
	at, rest, ok1 := strings.Cut(word, ":")
	peer, rest, ok2 := strings.Cut(rest, ".")
	verb, rest, ok3 := strings.Cut(rest, "(")
	list, ok4 := strings.CutSuffix(rest, ")")
	v := slices.Index(verbNames[:], verb)
	if !ok1 || !ok2 || !ok3 || !ok4 || v <= 0 {
		return s, fmt.Errorf("a step is at:peer.verb(args), and the verb one of %v", verbNames[1:])
	}
	s.Verb = Verb(v)
	if s.At, err = time.ParseDuration(at); err != nil {
		return s, err
	}
	if s.Peer, err = strconv.Atoi(peer); err != nil {
		return s, err
	}
	var args []string
	if list != "" {
		args = strings.Split(list, ",")
	}
	next := func() (arg string) {
		if len(args) > 0 {
			arg, args = args[0], args[1:]
		}
		return arg
	}
	if s.Verb.hasKind() {
		k := slices.Index(kindNames[:], next())
		if k <= 0 {
			return s, fmt.Errorf("%v is played on one of %v", s.Verb, kindNames[1:])
		}
		s.Kind = OpKind(k)
	}
	for _, d := range []struct {
		has bool
		to  *time.Duration
	}{{s.Verb.hasAmount(), &s.Amount}, {s.Verb.lasts(), &s.For}} {
		if d.has {
			if *d.to, err = time.ParseDuration(next()); err != nil {
				return s, err
			}
		}
	}
	if len(args) > 0 {
		return s, fmt.Errorf("%v does not take %v", s.Verb, args)
	}
	return s, nil
}

// maxShrinkRuns bounds how often Shrink calls fails.
const maxShrinkRuns = 300

// Shrink returns a plan that fails with fewer steps, by leaving out ever smaller parts of
// it. p must fail. It stops after 300 runs with the best it has.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	runs := 0
	for part := (len(p.Steps) + 1) / 2; part > 0; {
		shorter := false
		for at := 0; at < len(p.Steps); {
			if runs++; runs > maxShrinkRuns {
				return p
			}
			less := Plan{Seed: p.Seed, Steps: slices.Delete(slices.Clone(p.Steps), at, min(at+part, len(p.Steps)))}
			if fails(less) {
				p, shorter = less, true
			} else {
				at += part
			}
		}
		switch {
		case part > 1:
			part = (part + 1) / 2
		case !shorter:
			return p
		}
	}
	return p
}
