package tests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// plant is a bug that is planted in a copy of the tree, to see whether a test finds it.
type plant struct {
	name string
	file string
	// old is what stands once in the file, and mended what takes its place; in it
	// planted() is whether the bug is the one to be shown.
	old, mended string
	// test is the package whose test finds it, "" for the simulation, and run its name.
	test, run string
	// quick ones are tried each time, the others by `make planted`.
	quick bool
}

// plantedSeeds is how many seeds of the simulation may pass before a bug counts as not found.
const plantedSeeds = 300

// TestPlantedBugs
// Goal: the tests find what they are for. Method: plant bugs, each of the kind that an
// implementation of this could well have, in a copy of the tree; build it once, with a switch;
// run the test that should find it. docs/reliability.md has the table of what found which.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	chosen := func(p *plant) bool { return p.quick }
	if which := os.Getenv("TENURE_PLANTED"); which != "" { // a regular expression
		names := regexp.MustCompile(which)
		chosen = func(p *plant) bool { return names.MatchString(p.name) }
	}
	root := copyTree(t)
	packages := map[string]bool{"server": true}
	for i := range plants {
		p := &plants[i]
		p.sow(t, root)
		if p.test != "" && chosen(p) {
			packages[p.test] = true
		}
	}
	for name := range packages {
		build := exec.Command("go", "test", "-c", "-o", filepath.Join(root, name, "planted.test"), "./"+name)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for i := range plants {
		if p := &plants[i]; chosen(p) {
			p.find(t, root)
		}
	}
}

// copyTree copies what it takes to build the packages and their tests.
func copyTree(t *testing.T) string {
	root := t.TempDir()
	for _, file := range []string{"go.mod", "go.sum"} {
		copyFile(t, filepath.Join("..", file), filepath.Join(root, file))
	}
	for _, dir := range []string{"session", "znode", "watch", "wire", "store", "replica", "certfile", "server", "client", "bench", "recipes"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			copyFile(t, path, filepath.Join(root, strings.TrimPrefix(path, "../")))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func copyFile(t *testing.T, from, to string) {
	b, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sow plants the bug.
func (p *plant) sow(t *testing.T, root string) {
	path := filepath.Join(root, p.file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if n := strings.Count(text, p.old); n != 1 {
		t.Fatalf("%s: the place for the bug %q is there %d times, should be once:\n%s", p.file, p.name, n, p.old)
	}
	text = strings.Replace(text, p.old, strings.ReplaceAll(p.mended, "planted()", fmt.Sprintf("planted(%q)", p.name)), 1)
	name := filepath.Join(filepath.Dir(path), "planted.go")
	pkg := regexp.MustCompile(`(?m)^package (\w+)$`).FindStringSubmatch(text)[1]
	helper := fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar plantedName = os.Getenv(\"TENURE_PLANTED_BUG\")\n\n"+
		"func planted(name string) bool { return name == plantedName }\n", pkg)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o644), os.WriteFile(name, []byte(helper), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// find runs the test that should find the bug.
func (p *plant) find(t *testing.T, root string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args := []string{"-test.run", "^TestSimulation$", "-sim.seeds", fmt.Sprint(plantedSeeds)}
	dir := "server"
	if p.test != "" {
		dir, args = p.test, []string{"-test.run", p.run}
	}
	cmd := exec.CommandContext(ctx, "./planted.test", args...)
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(os.Environ(), "TENURE_PLANTED_BUG="+p.name)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began).Round(100 * time.Millisecond)
	if exit := new(exec.ExitError); !errors.As(err, &exit) || ctx.Err() != nil {
		t.Errorf("%s: not found: %v\n%s", p.name, err, lastLines(out))
		return
	}
	by := "a crash of the test"
	if m := regexp.MustCompile(`seed (\d+), after [^:]*: ([^:]*):`).FindAllSubmatch(out, -1); len(m) > 0 {
		first := slices.MinFunc(m, func(a, b [][]byte) int { return len(a[1]) - len(b[1]) })
		by = fmt.Sprintf("simulation, seed %s, check %q", first[1], first[2])
	} else if m := regexp.MustCompile(`--- FAIL: (\w+)`).FindSubmatch(out); m != nil {
		by = string(m[1])
	} else if m := regexp.MustCompile(`panic: .*`).Find(out); m != nil {
		by += ": " + string(m)
	}
	t.Logf("| %s | %s | %v on %d cores |", p.name, by, took, runtime.GOMAXPROCS(0))
}

func lastLines(out []byte) string {
	lines := strings.Split(string(out), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
