package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// damageNodes is how many znodes there are before something is damaged.
const damageNodes = 1000

func damageData(i int) string {
	return fmt.Sprintf("%d %s", i, strings.Repeat(string(rune('a'+i%26)), i%300))
}

// fillForDamage makes a data directory with known contents and ends its member.
func fillForDamage(t *testing.T, end func(*member)) *member {
	t.Helper()
	m := newMember(t)
	c := m.connect(client.Options{})
	for i := range damageNodes {
		if i == damageNodes/2 {
			m.stop() // one half is in the state, the other in the log only, unless end flushes
			m.start()
		}
		if _, _, err := c.Create(t.Context(), fmt.Sprintf("/n%d", i), []byte(damageData(i)), client.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	end(m)
	return m
}

// storedFiles returns the files of state and log that hold anything, by their path
// below the data directory.
func storedFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(dir, path)
		if err == nil && info.Size() > 0 && strings.Contains(rel, "/") && !strings.HasPrefix(d.Name(), "OPTIONS") {
			files = append(files, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Goal: a flipped bit in any stored file is found and named, and never lets wrong data
// be served or acknowledged data be missed in silence. Method: of a member that was
// stopped, and of one that was killed, copies with one flipped bit each, at random
// places of every file; tenured check and a start must both either name the file or the
// damage, or have everything. Writing on behind damage must not happen either: who
// starts must have it all.
func TestC125C127C129FlippedBit(t *testing.T) {
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for name, end := range map[string]func(*member){"stopped": (*member).stop, "killed": (*member).crash} {
		t.Run(name, func(t *testing.T) {
			m := fillForDamage(t, end)
			found := 0
			for _, file := range storedFiles(t, m.dir) {
				dir := copyDir(t, m.dir)
				at := flipBit(t, filepath.Join(dir, file), rng)
				if judgeDamage(t, dir, file, fmt.Sprintf("bit flipped in byte %d of %s", at, file)) {
					found++
				}
			}
			if found == 0 {
				t.Error("no flipped bit was found")
			}
		})
	}
}

// Goal: files that are missing or empty are named too. Method: as above. Not asked of the
// newest file of a write-ahead log: empty or missing it is like one that was just begun,
// so that nothing tells that there was more.
func TestC127C129MissingFiles(t *testing.T) {
	m := fillForDamage(t, (*member).crash)
	for _, file := range storedFiles(t, m.dir) {
		if filepath.Ext(file) == ".log" {
			continue
		}
		for name, damage := range map[string]func(path string) error{
			"removed": os.Remove,
			"emptied": func(path string) error { return os.Truncate(path, 0) },
		} {
			dir := copyDir(t, m.dir)
			if err := damage(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			judgeDamage(t, dir, file, file+" "+name)
		}
	}
}

// Goal: what a crash can leave behind the last record does not hide what comes later.
// Method: zeros or garbage behind, and bytes cut off the newest file of the log of a
// killed member. It must start, with all but what was cut off; what is then written must
// survive one more kill.
func TestC125TornTail(t *testing.T) {
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := fillForDamage(t, (*member).crash)
	logs, err := filepath.Glob(filepath.Join(m.dir, "log", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log files: %v", err)
	}
	intact, err := os.ReadFile(logs[len(logs)-1])
	if err != nil {
		t.Fatal(err)
	}
	garbage := make([]byte, 4096)
	for i := range garbage {
		garbage[i] = byte(rng.Uint32())
	}
	for name, content := range map[string][]byte{
		"zeros":   append(bytes.Clone(intact), make([]byte, 4096)...),
		"garbage": append(bytes.Clone(intact), garbage...),
		"cut":     intact[:len(intact)-1-rng.IntN(min(4096, len(intact)/2))],
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, m.dir)
			if err := os.WriteFile(filepath.Join(dir, "log", filepath.Base(logs[len(logs)-1])), content, 0o600); err != nil {
				t.Fatal(err)
			}
			m := &member{t: t, dir: dir}
			m.start()
			c := m.connect(client.Options{})
			if name != "cut" {
				mustHaveNodes(t, c, "/n", damageNodes)
			}
			for i := range 100 {
				if _, _, err := c.Create(t.Context(), fmt.Sprintf("/later%d", i), []byte(damageData(i)), client.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			m.crash()
			m.mustBeSound("after writes behind a torn tail")
			m.start()
			mustHaveNodes(t, c, "/later", 100)
		})
	}
}

// mustHaveNodes wants n znodes that were filled with damageData.
func mustHaveNodes(t *testing.T, c *client.Client, prefix string, n int) {
	t.Helper()
	for i := range n {
		data, _, err := c.Get(t.Context(), fmt.Sprintf("%s%d", prefix, i), client.ReadOptions{})
		if err != nil || string(data) != damageData(i) {
			t.Fatalf("%s%d has data %.40q: %v", prefix, i, data, err)
		}
	}
}

// copyDir copies a data directory of a member that does not run.
func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(to, "admin.token")); err != nil {
		t.Fatal(err) // the copy may be read by others, which the daemon does not like
	}
	return to
}

// flipBit flips one bit of a file and returns in which byte.
func flipBit(t *testing.T, path string, rng *rand.Rand) int {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := rng.IntN(len(content))
	content[at] ^= 1 << rng.IntN(8)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

// judgeDamage runs tenured check and then tenured itself on damaged data, and reports
// whether check has found it.
func judgeDamage(t *testing.T, dir, file, what string) (found bool) {
	t.Helper()
	out, err := exec.Command(program(t, "tenured"), "check", "--data-dir", dir).CombinedOutput()
	var exit *exec.ExitError
	if found = errors.As(err, &exit); found && !namesDamage(out, file) {
		t.Errorf("%s: check does not say where:\n%s", what, out)
	}
	d, err := launchDaemon(t, dir)
	defer d.kill()
	if err != nil {
		if !namesDamage(d.output.Bytes(), file) {
			t.Errorf("%s: the daemon does not start and does not say where:\n%s", what, &d.output)
		}
		return found
	}
	wrong, missing := serveDamaged(t, d)
	switch {
	case wrong != nil:
		t.Errorf("%s: %v", what, wrong)
	case missing != nil && !found:
		t.Errorf("%s: check finds nothing, but %v", what, missing)
	}
	return found
}

// namesDamage reports whether a message says which file is damaged (by its number, as
// Pebble does), or at least which of state and log, and what is wrong.
func namesDamage(out []byte, file string) bool {
	dir, base := filepath.Split(file)
	number := strings.TrimSuffix(base, filepath.Ext(base))
	part := regexp.MustCompile(`\b` + strings.TrimSuffix(dir, "/") + `\b.*(corrupt|missing|not exist|truncated|checksum|behind|beyond|ends before)`)
	return bytes.Contains(out, []byte(number)) || part.Match(out)
}

// serveDamaged reads everything. To give an error is right for what is damaged, to have
// other data or to say that a znode does not exist is wrong.
func serveDamaged(t *testing.T, d *daemon) (wrong, missing error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := client.Connect(ctx, client.Options{Endpoints: []string{d.address}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for i := range damageNodes {
		data, _, err := c.Get(ctx, fmt.Sprintf("/n%d", i), client.ReadOptions{})
		var answer *client.Error
		switch {
		case errors.As(err, &answer) && answer.Code.Name() == "NoNode":
			return fmt.Errorf("/n%d is said not to exist", i), nil
		case err != nil:
			return nil, err
		case string(data) != damageData(i):
			return fmt.Errorf("/n%d has data %.40q", i, data), nil
		}
	}
	return nil, nil
}
