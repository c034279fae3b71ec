package watch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/znode"
)

// modeNames are the names of the single modes, by bit.
var modeNames = []string{"data", "child", "persistent", "recursive"}

func parseMode(t testing.TB, names string) (m watch.Mode) {
	for name := range strings.SplitSeq(names, "+") {
		k := slices.Index(modeNames, name)
		switch {
		case name == "any":
			m |= watch.All
		case k < 0:
			t.Fatalf("unknown mode %q", name)
		default:
			m |= 1 << k
		}
	}
	return m
}

func formatMode(m watch.Mode) string {
	var names []string
	for k, name := range modeNames {
		if m&(1<<k) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "+")
}

var eventNames = map[znode.EventType]string{
	znode.EventCreated: "Created", znode.EventDeleted: "Deleted",
	znode.EventDataChanged: "DataChanged", znode.EventChildrenChanged: "ChildrenChanged",
}

func formatEvent(e watch.Event) string {
	return fmt.Sprintf("%d %s %s", e.To, eventNames[e.Type], e.Path)
}

// parseChanges reads lines like "create /a", "set /a", "delete /a".
func parseChanges(t testing.TB, text string) (changes []znode.Change) {
	for line := range strings.Lines(text) {
		var verb, path string
		if _, err := fmt.Sscanf(line, "%s %s", &verb, &path); err != nil {
			t.Fatalf("change %q: %v", line, err)
		}
		types := map[string]znode.EventType{
			"create": znode.EventCreated, "set": znode.EventDataChanged, "delete": znode.EventDeleted,
		}
		if types[verb] == 0 {
			t.Fatalf("unknown change %q", verb)
		}
		changes = append(changes, znode.Change{Type: types[verb], Path: path})
	}
	return changes
}

// script is one file of testdata: a Registry driven by directives.
//
//	add w=1 path=/a mode=data+child    remove and has take the same
//	drop w=1
//	txn, counts, watchers path=/a, paths w=1
//	want                               lines "data /a", kept for compare and replay
//	compare since=10                   lines "/a mzxid pzxid" are what exists
//	replay                             lines "zxid create /a"; equal zxids are one transaction
//
// Events print as "watcher type path".
type script struct {
	r    *watch.Registry
	want watch.Set
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var w int
	var path, mode string
	d.MaybeScanArgs(t, "w", &w)
	d.MaybeScanArgs(t, "path", &path)
	d.MaybeScanArgs(t, "mode", &mode)
	to := watch.Watcher(w)
	switch d.Cmd {
	case "reset":
		*s = script{r: watch.NewRegistry()}
		return ""
	case "add":
		s.r.Add(to, path, parseMode(t, mode))
		return ""
	case "remove":
		return formatMode(s.r.Remove(to, path, parseMode(t, mode)))
	case "has":
		return fmt.Sprint(s.r.Has(to, path, parseMode(t, mode)))
	case "drop":
		s.r.Drop(to)
		return ""
	case "counts":
		return fmt.Sprintf("%d watches, %d watchers, %d paths", s.r.Count(), s.r.Watchers(), s.r.WatchedPaths())
	case "txn":
		return s.txn(t, d)
	case "watchers", "paths":
		return s.list(d.Cmd, to, path)
	case "want":
		s.want = parseSet(t, d.Input)
		return ""
	case "compare":
		return s.compare(t, d)
	case "replay":
		return s.replay(t, d)
	}
	t.Fatalf("%s: unknown directive %q", d.Pos, d.Cmd)
	return ""
}

func (s *script) txn(t *testing.T, d *datadriven.TestData) string {
	var lines []string
	s.r.Match(parseChanges(t, d.Input), func(e watch.Event) { lines = append(lines, formatEvent(e)) })
	return strings.Join(lines, "\n")
}

func (s *script) list(what string, to watch.Watcher, path string) string {
	var lines []string
	if what == "watchers" {
		for w, m := range s.r.WatchersOf(path) {
			lines = append(lines, fmt.Sprint(w, " ", formatMode(m)))
		}
	} else {
		for path, m := range s.r.PathsOf(to) {
			lines = append(lines, path+" "+formatMode(m))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func parseSet(t *testing.T, text string) (set watch.Set) {
	for line := range strings.Lines(text) {
		kind, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		lists := map[string]*[]string{
			"data": &set.Data, "exist": &set.Exist, "child": &set.Child,
			"persistent": &set.Persistent, "recursive": &set.Recursive,
		}
		if lists[kind] == nil {
			t.Fatalf("unknown list %q", kind)
		}
		*lists[kind] = append(*lists[kind], path)
	}
	return set
}

func (s *script) compare(t *testing.T, d *datadriven.TestData) string {
	var since int64
	d.ScanArgs(t, "since", &since)
	state := map[string]watch.Found{}
	for line := range strings.Lines(d.Input) {
		var path string
		f := watch.Found{Exists: true}
		if _, err := fmt.Sscanf(line, "%s %d %d", &path, &f.Mzxid, &f.Pzxid); err != nil {
			t.Fatalf("%s: %q: %v", d.Pos, line, err)
		}
		state[path] = f
	}
	var lines []string
	left := watch.Compare(9, s.want, since, func(path string) watch.Found { return state[path] },
		func(e watch.Event) { lines = append(lines, formatEvent(e)) })
	return s.register(lines, left)
}

func (s *script) replay(t *testing.T, d *datadriven.TestData) string {
	history := func(yield func(int64, []znode.Change) bool) {
		var zxid int64
		var changes []znode.Change
		for line := range strings.Lines(d.Input) {
			number, change, _ := strings.Cut(line, " ")
			var z int64
			fmt.Sscan(number, &z)
			if z != zxid && changes != nil && !yield(zxid, changes) {
				return
			}
			if z != zxid {
				zxid, changes = z, nil
			}
			changes = append(changes, parseChanges(t, change)...)
		}
		if changes != nil {
			yield(zxid, changes)
		}
	}
	var lines []string
	left := watch.Replay(9, s.want, history, func(zxid int64, e watch.Event) {
		lines = append(lines, fmt.Sprintf("%d: %s", zxid, formatEvent(e)))
	})
	return s.register(lines, left)
}

// register adds what is left for watcher 9 and appends it to the printed lines.
func (s *script) register(lines []string, left []watch.Watch) string {
	for _, w := range left {
		s.r.Add(9, w.Path, w.Mode)
		lines = append(lines, "register "+w.Path+" "+formatMode(w.Mode))
	}
	return strings.Join(lines, "\n")
}

// runScript runs one file of testdata. Change the rules on purpose only: -rewrite
// writes the new output, and its diff is what to review.
func runScript(t *testing.T, file string) {
	s := &script{r: watch.NewRegistry()}
	datadriven.RunTest(t, "testdata/"+file, s.run)
}

// Goal: the rules of every kind of watch, readable as a text. Method: scripts; their
// comments say which rule a block shows.
func TestScripts(t *testing.T) {
	for _, file := range []string{"oneshot", "persistent", "recursive", "delete", "multi", "remove", "compare"} {
		t.Run(file, func(t *testing.T) { runScript(t, file) })
	}
}

// Goal: one-shot watches are registered again after a reconnect, those that missed
// something fire once and the others still work. Method: the reported steps as a
// script, once by the present state and once by the history.
func TestC041RewatchAfterReconnect(t *testing.T) { runScript(t, "C041") }

// Goal: a persistent recursive watch gets every change that happened while its
// connection was cut, delete and re-creation included. Method: the reported steps.
func TestC043NoGapAfterReconnect(t *testing.T) { runScript(t, "C043") }

// Goal: different watches on one path do not overwrite each other. Method: the
// reported steps.
func TestC045ModesCoexist(t *testing.T) { runScript(t, "C045") }

// Goal: a transaction that failed fires nothing and uses up nothing. Method: a failed
// transaction has no changes; then the good one of the report.
func TestC047FailedMultiFiresNothing(t *testing.T) { runScript(t, "C047") }
