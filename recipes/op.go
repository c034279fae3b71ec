package recipes

import (
	"fmt"

	"github.com/tenure-dev/tenure/znode"
)

// Cond is a condition on a znode's version. Its zero value is an error wherever it is
// used: it is neither "any" nor version 0. A plain value.
type Cond struct {
	kind    condKind
	version int32
}

type condKind uint8

const (
	condUnset condKind = iota
	condAlways
	condVersion
)

// Always is met by every version.
func Always() Cond { return Cond{kind: condAlways} }

// IfVersion is met by version n alone. Versions count from 0 and wrap; compare them for
// equality only.
func IfVersion(n int32) Cond { return Cond{kind: condVersion, version: n} }

// Version returns the version as protocols carry it, -1 for any. A zero Cond, and
// IfVersion(-1), which protocols cannot express, are ErrInvalid.
func (c Cond) Version() (int32, error) {
	switch {
	case c.kind == condUnset:
		return 0, fmt.Errorf("%w: the zero Cond: say Always() or IfVersion(n)", ErrInvalid)
	case c.kind == condVersion && c.version == -1:
		return 0, fmt.Errorf("%w: IfVersion(-1): to servers -1 means any version", ErrInvalid)
	case c.kind == condAlways:
		return -1, nil
	}
	return c.version, nil
}

// OpKind says what an Op does.
type OpKind uint8

// The operations of a Multi.
const (
	KindCreate OpKind = iota + 1
	KindSet
	KindDelete
	KindCheck
)

// String returns the operation's name.
func (k OpKind) String() string {
	return [...]string{"none", "create", "set", "delete", "check"}[min(k, KindCheck)]
}

// Op is one operation of a Multi. Make it with the functions below; its fields are for
// implementations of Store. A plain value that shares Data.
type Op struct {
	Kind OpKind
	Path string
	Data []byte
	Spec CreateSpec // KindCreate
	Cond Cond       // the others
}

// OpCreate makes a znode.
func OpCreate(path string, data []byte, s CreateSpec) Op {
	return Op{Kind: KindCreate, Path: path, Data: data, Spec: s}
}

// OpSet replaces a znode's data.
func OpSet(path string, data []byte, c Cond) Op {
	return Op{Kind: KindSet, Path: path, Data: data, Cond: c}
}

// OpDelete removes a childless znode.
func OpDelete(path string, c Cond) Op { return Op{Kind: KindDelete, Path: path, Cond: c} }

// OpCheck changes nothing; Always() asks that the znode exists.
func OpCheck(path string, c Cond) Op { return Op{Kind: KindCheck, Path: path, Cond: c} }

// OpResult is what became of one operation of a Multi that was applied.
type OpResult struct {
	Path string     // of a create: with its number
	Stat znode.Stat // of a set
}

// MultiError says which operation a transaction failed at. Nothing of it was applied.
type MultiError struct {
	Index int // the first that failed
	Op    Op
	Err   error // its cause, a znode.Error to errors.Is
}

// Error names the operation and its cause, not its data.
func (e *MultiError) Error() string {
	return fmt.Sprintf("transaction refused at operation %d, %v %s: %v", e.Index, e.Op.Kind, e.Op.Path, e.Err)
}

// Unwrap returns the cause.
func (e *MultiError) Unwrap() error { return e.Err }
