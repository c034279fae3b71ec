package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Goal: names of every script go in and come out unchanged, NFC and NFD apart, and what
// the data model refuses is refused with the rule. Method: create and list.
func TestC003CommandLineKeepsNames(t *testing.T) {
	s := newCLIServer(t)
	names := []string{"中文", "\u00e9", "e\u0301", "x\u00a0y"}
	s.must("create", "/u")
	for _, name := range names {
		s.must("create", "/u/"+name, name)
		if got := s.must("get", "-o", "raw", "/u/"+name); got != name {
			t.Errorf("get %q: %q", name, got)
		}
	}
	slices.Sort(names)
	if got, want := s.must("ls", "/u"), strings.Join(names, "\n")+"\n"; got != want {
		t.Errorf("ls printed %q, want %q", got, want)
	}
	for _, line := range strings.Split(strings.TrimSpace(s.must("ls", "-o", "json", "/u")), "\n") {
		var child struct{ Name string }
		if err := json.Unmarshal([]byte(line), &child); err != nil || !slices.Contains(names, child.Name) {
			t.Errorf("ls -o json: %q, %v", line, err)
		}
	}
	for _, name := range []string{"🐂", "\ufff0"} {
		if code, _, stderr := s.run("", "create", "/u/"+name); code != 2 || !strings.Contains(stderr, "must ") {
			t.Errorf("create %q: exit %d, %q; want 2 and the rule", name, code, stderr)
		}
	}
}

// dataLine is what "get -o json" prints.
type dataLine struct {
	Data   *string
	Base64 *[]byte
	Stat   struct{ DataLength int }
}

// dataOf gets path as JSON.
func (s *cliServer) dataOf(path string) (d dataLine) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.must("get", "-o", "json", path)), &d); err != nil {
		s.t.Fatalf("get %s: %v", path, err)
	}
	return d
}

// Goal: null, empty and binary data are told apart and stay what they are over a kill -9
// and over a move to another data directory by a snapshot; nothing raw reaches a
// terminal. Method: create the three, read them before, after, and on the other server.
func TestC005CommandLineKeepsNullEmptyAndBinary(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "/null")
	s.must("create", "/empty", "")
	s.mustRead("\x00\x1b[31m\xff", "create", "/binary", "-")
	check := func(s *cliServer, when string) {
		t.Helper()
		null, empty, binary := s.dataOf("/null"), s.dataOf("/empty"), s.dataOf("/binary")
		if null.Data != nil || null.Base64 != nil || null.Stat.DataLength != 0 {
			t.Errorf("%s: null data is %+v", when, null)
		}
		if empty.Data == nil || *empty.Data != "" || empty.Stat.DataLength != 0 {
			t.Errorf("%s: empty data is %+v", when, empty)
		}
		if binary.Base64 == nil || string(*binary.Base64) != "\x00\x1b[31m\xff" {
			t.Errorf("%s: binary data is %+v", when, binary)
		}
		for path, want := range map[string]string{"/null": "", "/empty": "", "/binary": "\x00\x1b[31m\xff"} {
			if got := s.must("get", "-o", "raw", path); got != want {
				t.Errorf("%s: get -o raw %s: %q", when, path, got)
			}
		}
		if shown := s.must("get", "/binary"); strings.ContainsAny(shown, "\x00\x1b") || strings.Contains(shown, "\xff") {
			t.Errorf("%s: get shows raw bytes: %q", when, shown)
		}
	}
	check(s, "at first")
	s.must("set", "/null", "five!")
	s.must("set", "/null", "--null")
	check(s, "set back to null")
	s = s.restart()
	check(s, "after kill -9")
	snapshot, moved := filepath.Join(t.TempDir(), "snapshot"), filepath.Join(t.TempDir(), "data")
	s.must("snapshot", "save", snapshot, "--token-file", s.token())
	s.must("snapshot", "check", snapshot)
	s.must("snapshot", "restore", snapshot, "--data-dir", moved)
	check(startCLIServer(t, moved), "on another server")
}

// Goal: all that set accepts can be read back with default settings, and one byte more
// is a clear error that names the limit, after which all goes on. Method: find the
// largest value by halving, a little below the limit that status shows.
func TestC069CommandLineAgreesOnTheLimit(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "/v")
	limit := 0
	for _, line := range strings.Split(s.must("status", "--figures"), "\n") {
		if value, ok := strings.CutPrefix(line, "max message bytes"); ok {
			limit, _ = strconv.Atoi(strings.TrimSpace(value)) // 0 fails below
		}
	}
	if limit < 1<<10 {
		t.Fatal("status does not show the limit")
	}
	file := filepath.Join(t.TempDir(), "value")
	set := func(n int) (code int, stderr string) {
		if err := os.WriteFile(file, bytes.Repeat([]byte{'v'}, n), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr = s.run("", "set", "/v", "@"+file)
		return code, stderr
	}
	low, high := limit-256, limit // accepted, refused
	for low+1 < high {
		n := (low + high) / 2
		if code, _ := set(n); code == 0 {
			low = n
		} else {
			high = n
		}
	}
	if limit-low > 200 {
		t.Errorf("largest value is %d, the limit of a message %d", low, limit)
	}
	for _, n := range []int{low - 1, low} {
		if code, stderr := set(n); code != 0 {
			t.Errorf("%d bytes: exit %d, %s", n, code, stderr)
		}
		if got := s.must("get", "-o", "raw", "/v"); len(got) != n {
			t.Errorf("%d bytes were accepted, %d come back", n, len(got))
		}
	}
	for _, n := range []int{low + 1, 2 * limit} {
		code, stderr := set(n)
		if code != 1 || !strings.Contains(stderr, "too large") || !strings.Contains(stderr, strconv.Itoa(limit)) {
			t.Errorf("%d bytes: exit %d, %q; want 1 and the limit %d", n, code, stderr, limit)
		}
	}
	if got := s.must("get", "-o", "raw", "/v"); len(got) != low {
		t.Errorf("a refused value replaced the node's: %d bytes", len(got))
	}
}

// Goal: ls shows all of 100,000 children, in order and in the end with 0. Method: import
// them, list them, export them, and delete them all.
func TestC071CommandLineListsHundredThousandChildren(t *testing.T) {
	const count = 100_000
	s := newCLIServer(t)
	var records, names strings.Builder
	records.WriteString("{\"path\":\"/\"}\n")
	for i := range count {
		fmt.Fprintf(&records, "{\"path\":\"/%040d\"}\n", i)
		fmt.Fprintf(&names, "%040d\n", i)
	}
	s.mustRead(records.String(), "import", "/big")
	if got := s.must("ls", "/big"); got != names.String() {
		t.Errorf("ls printed %d bytes with %d lines, want %d and %d", len(got), strings.Count(got, "\n"), names.Len(), count)
	}
	if got := s.must("export", "/big"); got != records.String() {
		t.Errorf("export wrote %d bytes, want %d", len(got), records.Len())
	}
	if got, want := s.must("rm", "-r", "--dry-run", "/big"), "would delete 100001 nodes\n"; got != want {
		t.Errorf("rm --dry-run printed %q, want %q", got, want)
	}
	if got, want := s.must("rm", "-r", "/big"), "deleted 100001 nodes\n"; got != want {
		t.Errorf("rm printed %q, want %q", got, want)
	}
	if code, _, _ := s.run("", "stat", "/big"); code != 4 {
		t.Errorf("stat of what was deleted: exit %d", code)
	}
}
