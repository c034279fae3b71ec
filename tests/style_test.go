package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Bounds that keep a function on one screen and a file in one head, tests included.
const (
	functionLinesMax = 70
	fileLinesMax     = 500
)

// source is one parsed Go file.
type source struct {
	path string // from the root of the repository
	text string
	fset *token.FileSet
	file *ast.File
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

// sources parses all Go files of the repository.
func sources(t *testing.T) (all []source) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s := source{path: filepath.ToSlash(strings.TrimPrefix(path, "../")), text: string(text), fset: token.NewFileSet()}
		s.file, err = parser.ParseFile(s.fset, path, text, parser.ParseComments)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// functions calls f for each declared function that has a body.
func (s source) functions(f func(*ast.FuncDecl)) {
	for _, d := range s.file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			f(fn)
		}
	}
}

// Goal: no function and no file grows past its bound. Method: count lines.
func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if n := strings.Count(s.text, "\n"); n > fileLinesMax {
			t.Errorf("%s: %d lines, at most %d", s.path, n, fileLinesMax)
		}
		s.functions(func(fn *ast.FuncDecl) {
			if n := s.line(fn.End()) - s.line(fn.Pos()) + 1; n > functionLinesMax {
				t.Errorf("%s:%d: %s has %d lines, at most %d", s.path, s.line(fn.Pos()), fn.Name.Name, n, functionLinesMax)
			}
		})
	}
}

// Goal: nothing is left for later. Method: the usual marks in comments and code.
func TestNothingIsLeftForLater(t *testing.T) {
	marks := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b|panic\("stub"\)`)
	for _, s := range sources(t) {
		for i, line := range slices.Collect(strings.Lines(s.text)) {
			if mark := marks.FindString(line); mark != "" {
				t.Errorf("%s:%d: %s", s.path, i+1, mark)
			}
		}
	}
}

// calls yields the names of the package.function or value.method calls below n.
func calls(n ast.Node, f func(call *ast.CallExpr, x, name string)) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				f(call, x.Name, sel.Sel.Name)
			}
		}
		return true
	})
}

// Goal: a test waits for what it needs and always runs. Method: no sleep outside the
// fake time of testing/synctest; no skip but in a function that fails instead where
// TENURE_REQUIRE_FOREIGN asks for it.
func TestTestsNeitherSleepNorSkip(t *testing.T) {
	for _, s := range sources(t) {
		if !s.isTest() {
			continue
		}
		fakeTime := strings.Contains(s.text, `"testing/synctest"`)
		s.functions(func(fn *ast.FuncDecl) {
			body := s.text[s.fset.Position(fn.Pos()).Offset:s.fset.Position(fn.End()).Offset]
			calls(fn.Body, func(call *ast.CallExpr, x, name string) {
				at := fmt.Sprintf("%s:%d: %s.%s", s.path, s.line(call.Pos()), x, name)
				if x == "time" && name == "Sleep" && !fakeTime {
					t.Errorf("%s: wait for the condition instead", at)
				}
				isSkip := name == "Skip" || name == "Skipf" || name == "SkipNow"
				if isSkip && slices.Contains([]string{"t", "b", "f", "tb"}, x) && !strings.Contains(body, "TENURE_REQUIRE_FOREIGN") {
					t.Errorf("%s: a test must run", at)
				}
			})
		})
	}
}

// Goal: every package says what it is. Method: one file of it has a package comment.
func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		dir := filepath.Dir(s.path)
		isDoc := s.file.Doc != nil && (!s.isTest() || dir == "tests")
		documented[dir] = documented[dir] || isDoc
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no comment", dir)
		}
	}
}

// Goal: every exported name has a sentence about it. Method: doc comments of exported
// functions, methods of exported types, types, and constants and variables (their own,
// their line's or their group's). Not asked of the values of an enumeration, whose
// type's comment speaks for them, and of methods whose interface every reader knows.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || s.file.Name.Name == "main" {
			continue
		}
		for _, d := range s.file.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s:%d: %s has no comment", s.path, s.line(name.Pos()), name.Name)
			}
		}
	}
}

// undocumented returns the exported names that d declares without a comment.
func undocumented(d ast.Decl) (names []*ast.Ident) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		known := slices.Contains([]string{"Error", "String", "Unwrap"}, d.Name.Name)
		if d.Doc == nil && !known && d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		if d.Doc != nil {
			return nil
		}
		typed := false // an enumeration names its type in its first line at least
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Doc == nil && spec.Name.IsExported() {
					names = append(names, spec.Name)
				}
			case *ast.ValueSpec:
				typed = typed || d.Tok == token.CONST && spec.Type != nil
				if !typed && spec.Doc == nil && spec.Comment == nil {
					names = append(names, slices.DeleteFunc(slices.Clone(spec.Names), func(n *ast.Ident) bool { return !n.IsExported() })...)
				}
			}
		}
	}
	return names
}

// receiver returns the name of the type that fn is a method of.
func receiver(fn *ast.FuncDecl) string {
	name := ""
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// Goal: types are named for what they are in the domain, not for how they feel.
// Method: the endings that say nothing.
func TestNamesSaySomething(t *testing.T) {
	empty := regexp.MustCompile(`(Manager|Helper|Helpers|Util|Utils|Impl|Controller|Service)$`)
	for _, s := range sources(t) {
		if regexp.MustCompile(`^(util|utils|common|helpers?|misc)$`).MatchString(s.file.Name.Name) {
			t.Errorf("%s: package %s", s.path, s.file.Name.Name)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && empty.MatchString(spec.Name.Name) {
				t.Errorf("%s:%d: type %s", s.path, s.line(spec.Pos()), spec.Name.Name)
			}
			return true
		})
	}
}
