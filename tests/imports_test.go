// Package tests holds what concerns the repository as a whole: its import rules and
// style, and the built programs driven as processes, by foreign clients too.
package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tenure-dev/tenure"

// pure are the packages whose behaviour follows from their arguments alone.
var pure = []string{"session", "znode", "watch", "wire"}

// effects are the standard packages (with all below them) that pure ones do without:
// clocks, randomness, files, sockets, goroutines' tools. net/netip is none of them: it
// only computes.
var effects = []string{"time", "os", "net", "sync", "context", "log", "math/rand", "crypto/rand", "io/fs", "syscall", "unsafe"}

// goPackage is what this test needs of go list's answer.
type goPackage struct {
	ImportPath string
	GoFiles    []string
	Imports    []string // of the non-test files
}

func (p goPackage) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// listPackages asks the go command for all packages of the module.
func listPackages(t *testing.T) (all []goPackage) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,GoFiles,Imports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
	return all
}

// allowedImports reads the table of ARCHITECTURE.md: cells "package : imports", two to
// a line, "-" for none. There is no second copy of it.
func allowedImports(t *testing.T) map[string][]string {
	text, err := os.ReadFile(filepath.Join("..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\nAllowed imports inside the module")
	_, block, fenced := strings.Cut(after, "```\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !fenced || !closed {
		t.Fatal(`ARCHITECTURE.md has no fenced table behind "Allowed imports inside the module"`)
	}
	allowed := map[string][]string{}
	for line := range strings.Lines(block) {
		// A cell ends where the name of the next begins: at the word before a colon.
		words, name := strings.Fields(strings.ReplaceAll(line, ":", " : ")), ""
		for i, word := range words {
			switch {
			case i+1 < len(words) && words[i+1] == ":":
				name = word
				allowed[name] = []string{}
			case word != ":" && word != "-":
				allowed[name] = append(allowed[name], word)
			}
		}
	}
	return allowed
}

// Goal: the arrows between packages are those of ARCHITECTURE.md and no others, and
// every package is in its table. Method: compare with what go list says; tests may
// import more, and so may this folder.
func TestImportsAreDeclared(t *testing.T) {
	allowed := allowedImports(t)
	for _, name := range pure {
		if allowed[name] == nil {
			t.Errorf("ARCHITECTURE.md's table of imports lacks %s", name)
		}
	}
	for _, p := range listPackages(t) {
		may, declared := allowed[p.name()]
		if p.name() == "tests" {
			continue
		}
		if !declared {
			t.Errorf("package %s is not in ARCHITECTURE.md's table of imports", p.name())
		}
		for _, path := range p.Imports {
			inner, isInner := strings.CutPrefix(path, module+"/")
			if isInner && !slices.Contains(may, inner) {
				t.Errorf("%s imports %s, which ARCHITECTURE.md does not allow", p.name(), inner)
			}
		}
	}
}

// Goal: the core stays pure: no clock, randomness, file, socket, lock or foreign
// module decides anything there. Method: the imports of its non-test files.
func TestCoreIsPure(t *testing.T) {
	for _, p := range listPackages(t) {
		if !slices.Contains(pure, p.name()) {
			continue
		}
		for _, path := range p.Imports {
			first, _, _ := strings.Cut(path, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(path, module+"/") {
				t.Errorf("%s imports %s: the core has no foreign modules", p.name(), path)
			}
			for _, effect := range effects {
				if path == effect || strings.HasPrefix(path, effect+"/") && path != "net/netip" {
					t.Errorf("%s imports %s: the core knows no %s", p.name(), path, effect)
				}
			}
		}
	}
}
