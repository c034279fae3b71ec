package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Goal: a lock that is held is busy (3) for those who do not wait or not for long, and its
// holder exits with 7 if it is taken away; the kinds of locks admit whom they should.
// Method: one holder, and others with each flag; an operator who deletes the place.
func TestLockFlags(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		for _, test := range []struct {
			held, ask string // flags and name of the holder and of who asks
			code      int
		}{
			{"l", "--try l", 3},
			{"l", "--timeout 300ms l", 3},
			{"l", "--try other", 0},
			{"l m", "--try m", 3},
			{"--read r", "--try --read r", 0},
			{"--read r", "--try --write r", 3},
			{"--write r", "--try --read r", 3},
			{"--slots 2 s", "--try --slots 2 s", 0},
			{"--slots 1 t", "--try --slots 1 t", 3},
		} {
			// Where the machine is too slow for the holder to hold on it says so: once more.
			for held := false; !held; {
				holder := s.start(append(append([]string{"lock"}, strings.Fields(test.held)...), "--", "sh", "-c", willing)...)
				holder.pid()
				code, _, stderr := s.run("", append(append([]string{"lock"}, strings.Fields(test.ask)...), "--", "true")...)
				_ = holder.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
				if held = holder.exit() != 7; !held {
					continue
				}
				if code != test.code || code == 3 && !strings.Contains(stderr, "held") {
					t.Errorf("%s while %s is held: exit %d, %q; want %d", test.ask, test.held, code, stderr, test.code)
				}
			}
		}
		lines := s.must("lock", "b", "a", "--", "sh", "-c", `echo "$TENURE_FENCING_TOKENS"`)
		if !regexp.MustCompile(`^/tenure/locks/a=\d+\n/tenure/locks/b=\d+\n$`).MatchString(lines) {
			t.Errorf("tokens: %q", lines)
		}
		holder := s.start("lock", "gone", "--", "sh", "-c", stubborn)
		pid := holder.pid()
		place := strings.Fields(s.must("ls", "/tenure/locks/gone"))[0]
		s.must("rm", "/tenure/locks/gone/"+place)
		if code := holder.exit(); code != 7 || processRuns(pid) {
			t.Errorf("exit %d of a holder whose place was deleted; its command lives: %v", code, processRuns(pid))
		}
	})
}

// Goal: one process leads several elections in one session, with a command for each, and
// ends when all have. Method: three names; the commands tell which is theirs.
func TestElectSeveral(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		code, stdout, stderr := s.run("", "elect", "a", "b", "c", "--", "sh", "-c",
			`echo $TENURE_ELECTION; test $TENURE_ELECTION != b || exit 5`)
		for _, name := range []string{"a", "b", "c"} {
			if !strings.Contains(stdout, name+"\n") || !strings.Contains(stderr, "/tenure/elections/"+name+": elected, token ") {
				t.Errorf("no command for %s: %q, %q", name, stdout, stderr)
			}
		}
		if code != 5 {
			t.Errorf("exit %d", code)
		}
		again := s.start("elect", "a", "--restart", "--", "sh", "-c", "echo run")
		until(t, again.out, "run")
		until(t, again.out, "run")
		if code, _, stderr := s.run("", "floor", "a", "99999999999"); code != 0 {
			t.Fatalf("floor: exit %d, %s", code, stderr)
		}
		until(t, again.errs, "token 100000000000")
		again.signal(syscall.SIGTERM)
		again.exit()
	})
}

// Goal: members come, go and are seen. Method: two members, one with a command, and a
// watch.
func TestJoinAndMembers(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		watch := s.start("members", "g", "--watch")
		until(t, watch.out, "members 0")
		one := s.start("join", "g", "--id", "one", "--data", "1.2.3.4:5")
		until(t, watch.out, "fresh: one")
		two := s.start("join", "g", "--id", "two", "--", "sh", "-c", "echo $TENURE_GROUP $TENURE_MEMBER; "+willing)
		until(t, two.out, "/tenure/groups/g two")
		two.pid()
		until(t, watch.out, "fresh: one two")
		if got := s.must("members", "g"); got != "one\t1.2.3.4:5\ntwo\n" {
			t.Errorf("members: %q", got)
		}
		one.signal(syscall.SIGTERM)
		until(t, watch.out, "fresh: two")
		if code := one.exit(); code != 130 {
			t.Errorf("exit %d", code)
		}
		if code, _, stderr := s.run("", "join", "g", "--id", "two", "--timeout", "300ms"); code != 3 {
			t.Errorf("an id that is taken: exit %d, %s", code, stderr)
		}
		two.signal(syscall.SIGKILL)
		until(t, watch.out, "members 0")
	})
}

// Goal: configurations are validated, written conditionally, kept, reverted and watched,
// and an edit that somebody was faster than loses nothing. Method: each verb; an editor
// that changes the value itself.
func TestConfigVerbs(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		t.Setenv("VISUAL", "")
		for _, step := range []struct {
			line string
			code int
			want string // in what it prints
		}{
			{"get c", 4, "no node"},
			{"set c {} --format json --if-version none", 0, "version 0"},
			{"set c { --format json", 2, "not JSON"},
			{"set c x --if-version none", 3, "it exists"},
			{"set c x --if-version 7", 3, "its version is 0"},
			{"set c second --if-version 0", 0, "version 1"},
			{"get c", 0, "second\n"},
			{"get c --format json", 1, "not JSON"},
			{"get c -o json", 0, `"version":1`},
			{"history c", 0, "\t6 bytes\tsecond\n"},
			{"revert c 0", 0, "version 2"},
			{"get c -o raw", 0, "{}"},
			{"revert c 99", 4, "not kept"},
			{"watch c --count 1", 0, "--- version 2"},
		} {
			code, stdout, stderr := s.run("", append([]string{"config"}, strings.Fields(step.line)...)...)
			if code != step.code || !strings.Contains(stdout+stderr, step.want) {
				t.Errorf("config %s: exit %d, %q, %q; want %d and %q", step.line, code, stdout, stderr, step.code, step.want)
			}
		}
		t.Setenv("EDITOR", "printf mine >")
		if got := s.must("config", "edit", "c"); got != "version 3\n" {
			t.Errorf("edit: %q", got)
		}
		t.Setenv("EDITOR", program(t, "tenure")+` config set c theirs && printf "my text" >`)
		code, _, stderr := s.run("", "config", "edit", "c")
		if code != 3 || !strings.Contains(stderr, "theirs") || !strings.Contains(stderr, "my text") {
			t.Errorf("edit with a conflict: exit %d, %q", code, stderr)
		}
		kept, err := filepath.Glob(filepath.Join(dir, "tenure-c-*"))
		if err != nil || len(kept) != 1 || !strings.Contains(stderr, kept[0]) {
			t.Fatalf("kept %q, %v; said %q", kept, err, stderr)
		}
		if text, err := os.ReadFile(kept[0]); string(text) != "my text" {
			t.Errorf("kept %q, %v", text, err)
		}
		if got := s.must("config", "get", "c"); got != "theirs\n" {
			t.Errorf("stored %q", got)
		}
	})
}

// Goal: a lease is shown, busy while it is held, taken over when its holder is gone, and
// handed over. Method: a holder that is killed, and one that is asked.
func TestLeaseVerbs(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		if code, _, stderr := s.run("", "lease", "l"); code != 4 {
			t.Errorf("exit %d for no lease, %s", code, stderr)
		}
		first := s.start("lease", "l", "--id", "first", "--duration", "2s", "--", "sh", "-c", willing)
		pid := first.pid()
		if got := s.must("lease", "l", "-o", "json"); !strings.Contains(got, `"holder":"first"`) || !strings.Contains(got, `"duration":"2s"`) {
			t.Errorf("record: %s", got)
		}
		if code, _, stderr := s.run("", "lease", "l", "--try", "--", "true"); code != 3 {
			t.Errorf("exit %d for a lease that is held, %s", code, stderr)
		}
		second := s.start("lease", "l", "--id", "second", "--duration", "2s", "--", "sh", "-c", after(pid)+"; "+willing)
		first.signal(syscall.SIGKILL)
		first.exit()
		if line := until(t, second.out, ""); line != "alone" {
			t.Errorf("the next holder says %q", line)
		}
		second.pid()
		s.must("lease", "l", "--hand-over", "third")
		if code := second.exit(); code != 7 {
			t.Errorf("exit %d after a hand-over", code)
		}
		s.must("lease", "l", "--id", "third", "--", "true")
		if code, _, stderr := s.run("", "lease", "l", "--renew-deadline", "1m", "--", "true"); code != 2 {
			t.Errorf("exit %d for options that are not safe, %s", code, stderr)
		}
	})
}

// Goal: an item is deleted when its command succeeds, and given out again when it fails or
// dies; counters count; a barrier holds back. Method: each verb, and kill -9.
func TestQueueCounterBarrierVerbs(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		take := func(script string) (code int, stdout string) {
			code, stdout, _ = s.run("", "queue", "take", "q", "--session-timeout", "2s", "--timeout", "8s", "--", "sh", "-c", script)
			return code, stdout
		}
		s.must("queue", "put", "q", "body", "--id", "a")
		s.must("queue", "put", "q", "again", "--id", "a") // is there already
		if code, out := take(`cat; echo " $TENURE_ITEM $TENURE_ATTEMPT"; exit 9`); code != 9 || out != "body a 1\n" {
			t.Errorf("exit %d, %q", code, out)
		}
		killed := s.start("queue", "take", "q", "--session-timeout", "2s", "--", "sh", "-c", stubborn)
		killed.pid()
		killed.signal(syscall.SIGKILL)
		killed.exit()
		if code, out := take(`cat; echo " $TENURE_ITEM $TENURE_ATTEMPT"`); code != 0 || out != "body a 3\n" {
			t.Errorf("exit %d, %q", code, out)
		}
		if code, _, stderr := s.run("", "queue", "take", "q", "--timeout", "300ms", "--", "true"); code != 3 {
			t.Errorf("exit %d of an empty queue, %s", code, stderr)
		}
		if got := s.must("counter", "c", "5") + s.must("counter", "c", "--", "-2") + s.must("counter", "c"); got != "5\n3\n3\n" {
			t.Errorf("counter: %q", got)
		}
		s.must("barrier", "raise", "b")
		if code, _, stderr := s.run("", "barrier", "wait", "b", "--timeout", "300ms"); code != 3 {
			t.Errorf("exit %d of a raised barrier, %s", code, stderr)
		}
		waits := s.start("barrier", "wait", "b")
		s.must("barrier", "lower", "b")
		if code := waits.exit(); code != 0 {
			t.Errorf("exit %d of a lowered barrier", code)
		}
	})
}
