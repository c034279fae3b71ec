package tests

import (
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/tenure-dev/tenure/znode"
)

// treeOp is what a client asks for in a history. The model is written from the
// documented semantics and shares no code with the server.
type treeOp int

const (
	treeGet       treeOp = iota
	treeSet              // of version, -1 = any
	treeCreate           // of a znode, or of a sequential child if the key is treeSequence
	treeDelete           // of version, -1 = any
	treeCount            // children of treeSequence
	treeGetFirst         // of treePair
	treeGetSecond        // of treePair
)

// Two keys are not one znode: the parent of sequential znodes, and two znodes that are
// only set together.
const (
	treeSequence = "/sequence"
	treePair     = "/pair"
)

type treeInput struct {
	op      treeOp
	key     string
	value   string
	version int32
}

// treeOutput is the answer; with unknown there was none.
type treeOutput struct {
	code    znode.Error
	value   string
	version int32
	number  int // of a sequential child, or of children
	unknown bool
}

// treeState is one key: a znode, a pair of them, or a parent of sequential znodes.
type treeState struct {
	exists  bool
	value   string
	version int32
	count   int
}

// step is the next state and the only right answer.
func (s treeState) step(in treeInput) (treeState, treeOutput) {
	wrong := in.version != -1 && in.version != s.version
	switch {
	case in.key == treeSequence && in.op == treeCreate:
		return treeState{count: s.count + 1}, treeOutput{number: s.count}
	case in.key == treeSequence:
		return s, treeOutput{number: s.count}
	case in.op == treeCreate && s.exists:
		return s, treeOutput{code: znode.NodeExists}
	case in.op == treeCreate:
		return treeState{exists: true, value: in.value}, treeOutput{}
	case !s.exists:
		return s, treeOutput{code: znode.NoNode}
	case in.op == treeDelete && wrong, in.op == treeSet && wrong:
		return s, treeOutput{code: znode.BadVersion}
	case in.op == treeDelete:
		return treeState{}, treeOutput{}
	case in.op == treeSet:
		return treeState{exists: true, value: in.value, version: s.version + 1}, treeOutput{version: s.version + 1}
	}
	return s, treeOutput{value: s.value, version: s.version}
}

// treeModel judges each key by itself: no operation of a history touches two.
var treeModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		index := map[string]int{}
		for _, op := range history {
			key := op.Input.(treeInput).key
			if _, ok := index[key]; !ok {
				index[key] = len(parts)
				parts = append(parts, nil)
			}
			parts[index[key]] = append(parts[index[key]], op)
		}
		return parts
	},
	Init: func() any { return treeState{} },
	Step: func(state, input, output any) (bool, any) {
		next, want := state.(treeState).step(input.(treeInput))
		out := output.(treeOutput)
		return out.unknown || out == want, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

// Goal: the check can fail. Method: histories with one fault each, such as a write that
// is applied twice or a read of old data, are refused; the sound one is not.
func TestLinearizabilityModelRefusesFaults(t *testing.T) {
	call := func(at int64, in treeInput, out treeOutput) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: at, Return: at + 1}
	}
	create := treeInput{op: treeCreate, key: "/a", value: "1"}
	set := treeInput{op: treeSet, key: "/a", value: "2", version: -1}
	get := treeInput{op: treeGet, key: "/a"}
	child := treeInput{op: treeCreate, key: treeSequence}
	lost := porcupine.Operation{Input: set, Output: treeOutput{unknown: true}, Call: 20, Return: endOfHistory}
	for name, test := range map[string]struct {
		history []porcupine.Operation
		sound   bool
	}{
		"sound":            {[]porcupine.Operation{call(0, create, treeOutput{}), call(10, set, treeOutput{version: 1}), call(20, get, treeOutput{value: "2", version: 1})}, true},
		"stale":            {[]porcupine.Operation{call(0, create, treeOutput{}), call(10, set, treeOutput{version: 1}), call(20, get, treeOutput{value: "1"})}, false},
		"twice":            {[]porcupine.Operation{call(0, create, treeOutput{}), call(10, set, treeOutput{version: 1}), call(20, get, treeOutput{value: "2", version: 2})}, false},
		"lost":             {[]porcupine.Operation{call(0, create, treeOutput{}), call(10, get, treeOutput{code: znode.NoNode})}, false},
		"unknown, applied": {[]porcupine.Operation{call(0, create, treeOutput{}), lost, call(30, get, treeOutput{value: "2", version: 1})}, true},
		"unknown, not yet": {[]porcupine.Operation{call(0, create, treeOutput{}), lost, call(30, get, treeOutput{value: "1"})}, true},
		"unknown, undone": {[]porcupine.Operation{call(0, create, treeOutput{}), lost, call(30, get, treeOutput{value: "2", version: 1}),
			call(40, get, treeOutput{value: "1"})}, false},
		"number twice": {[]porcupine.Operation{call(0, child, treeOutput{}), call(10, child, treeOutput{})}, false},
	} {
		if got := porcupine.CheckOperations(treeModel, test.history); got != test.sound {
			t.Errorf("%s: linearizable = %v", name, got)
		}
	}
}
