package native

import (
	"fmt"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// modeOf returns the mode of a create.
func modeOf(spec recipes.CreateSpec) (znode.Mode, error) {
	return znode.Mode{Kind: spec.Kind, Sequential: spec.Sequential}, spec.Validate()
}

// opOf returns op as the client takes it.
func opOf(op *recipes.Op) (znode.Op, error) {
	if op.Kind == recipes.KindCreate {
		mode, err := modeOf(op.Spec)
		return &znode.Create{Path: op.Path, Data: op.Data, Mode: mode}, err
	}
	version, err := op.Cond.Version()
	if err != nil {
		return nil, err
	}
	switch op.Kind {
	case recipes.KindSet:
		return &znode.SetData{Path: op.Path, Data: op.Data, Version: version}, nil
	case recipes.KindDelete:
		return &znode.Delete{Path: op.Path, Version: version}, nil
	case recipes.KindCheck:
		return &znode.Check{Path: op.Path, Version: version}, nil
	}
	return nil, fmt.Errorf("%w: Op.Kind %d: make operations with OpCreate, OpSet, OpDelete and OpCheck", recipes.ErrInvalid, op.Kind)
}
