package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// declaredOps are the exported constants of type Op in message.go.
func declaredOps(t *testing.T) map[string]Op {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "message.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ops := map[string]Op{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		typ, ok := spec.Type.(*ast.Ident)
		if !ok || typ.Name != "Op" || !spec.Names[0].IsExported() {
			return true
		}
		text, value := "", spec.Values[0]
		if minus, ok := value.(*ast.UnaryExpr); ok {
			text, value = "-", minus.X
		}
		code, err := strconv.Atoi(text + value.(*ast.BasicLit).Value)
		if err != nil {
			t.Fatalf("%s: %v", spec.Names[0].Name, err)
		}
		ops[spec.Names[0].Name] = Op(code)
		return true
	})
	return ops
}

// Goal: no operation is without a row in the table of permissions, and no number that is
// not an operation has one. Method: the constants as the source declares them, and all
// numbers around them.
func TestEveryOperationHasAnAccess(t *testing.T) {
	declared := declaredOps(t)
	known := map[Op]bool{}
	for name, op := range declared {
		known[op] = true
		if AccessOf(op) == znode.AccessDenied {
			t.Errorf("%s (%v) has no row in AccessOf", name, op)
		}
		if strings.HasPrefix(op.String(), "op ") {
			t.Errorf("%s has no name", name)
		}
	}
	if len(known) < 35 {
		t.Errorf("only %d operations found in message.go", len(known))
	}
	for op := Op(-2000); op < 2000; op++ {
		if !known[op] && AccessOf(op) != znode.AccessDenied {
			t.Errorf("%v has a row in AccessOf, but is not declared", op)
		}
	}
}

// Goal: the table says what ZooKeeper's documentation says. Method: its rows once more, by
// permission and whose list, against what lists with exactly one entry allow.
func TestAccessesAskForTheirPermission(t *testing.T) {
	const anyPerm = -1
	for access, want := range map[znode.Access]int32{
		znode.AccessDenied: 0, znode.AccessServer: 0, znode.AccessSuper: 0, 200: 0,
		znode.AccessSession: anyPerm, znode.AccessParts: anyPerm,
		znode.AccessRead: znode.PermRead, znode.AccessReadACL: znode.PermRead | znode.PermAdmin,
		znode.AccessWrite: znode.PermWrite, znode.AccessAdmin: znode.PermAdmin,
		znode.AccessCreate: znode.PermCreate, znode.AccessDelete: znode.PermDelete, znode.AccessConfig: znode.PermWrite,
	} {
		for perm := int32(1); perm <= znode.PermAdmin; perm *= 2 {
			list := []znode.ACL{{Perms: perm, Scheme: "world", ID: "anyone"}}
			if got := access.Allowed(list, nil); got != (want == anyPerm || want&perm != 0) {
				t.Errorf("access %d with permission %d alone: %v", access, perm, got)
			}
		}
		super := []znode.Identity{{Scheme: "super"}}
		shut := []znode.ACL{{Perms: 0, Scheme: "world", ID: "anyone"}}
		nobody := access == znode.AccessDenied || access == znode.AccessServer || access == 200
		if got := access.Allowed(shut, super); got == nobody {
			t.Errorf("access %d for super: %v", access, got)
		}
	}
}
