package zk

import (
	"context"
	"errors"
	"fmt"

	gozk "github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes"
)

// Multi is recipes.Store.Multi. Containers are made persistent: ZooKeeper has none in
// transactions. A transaction that only checks changes nothing, so that it is repeated
// until it has an answer, as a read is.
func (s *Store) Multi(ctx context.Context, ops ...recipes.Op) ([]recipes.OpResult, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	requests, checks, size := make([]any, len(ops)), true, requestOverhead
	for i, op := range ops {
		var err error
		if requests[i], err = s.request(op); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
		checks = checks && op.Kind == recipes.KindCheck
		size += opOverhead + len(s.o.Chroot) + len(op.Path) + len(op.Data)
		if op.Kind == recipes.KindCreate {
			size += s.aclSize()
		}
	}
	if err := checkSize("transaction", ops[0].Path, size); err != nil {
		return nil, err
	}
	var t transaction
	var err error
	if checks {
		_, t, err = s.session().check(ctx, requests)
	} else {
		t, err = once(ctx, s.session(), true, func(c *gozk.Conn) (transaction, error) { return transact(c, requests) })
	}
	if err != nil {
		return nil, describe("transaction", ops[0].Path, err)
	}
	return s.results(ops, t)
}

// request is the library's form of op.
func (s *Store) request(op recipes.Op) (any, error) {
	if op.Kind == recipes.KindCreate {
		full, flags, err := s.creation(op.Path, op.Spec)
		return &gozk.CreateRequest{Path: full, Data: op.Data, Acl: s.acl, Flags: flags}, err
	}
	full, version, err := s.target(op.Kind.String(), op.Path, op.Cond)
	switch op.Kind {
	case recipes.KindSet:
		return &gozk.SetDataRequest{Path: full, Data: op.Data, Version: version}, err
	case recipes.KindDelete:
		return &gozk.DeleteRequest{Path: full, Version: version}, err
	case recipes.KindCheck:
		return &gozk.CheckVersionRequest{Path: full, Version: version}, err
	}
	return nil, fmt.Errorf("%w: the zero Op", recipes.ErrInvalid)
}

// transaction is the server's answer to one.
type transaction struct {
	responses []gozk.MultiResponse
	refused   int   // index of the operation that failed, if cause is set
	cause     error // the library's
}

// transact makes a transaction. Of one that was refused the first operation with an error
// is the cause; those behind it have errors that say nothing, those before it none.
func transact(c *gozk.Conn, requests []any) (transaction, error) {
	responses, err := c.Multi(requests...)
	for i, r := range responses {
		if errors.Is(r.Error, gozk.ErrSessionExpired) {
			return transaction{}, r.Error
		}
		if r.Error != nil {
			return transaction{refused: i, cause: r.Error}, nil
		}
	}
	return transaction{responses: responses}, err
}

// reason is why the transaction was refused, nil if it was applied.
func (t transaction) reason() error {
	if t.cause == nil {
		return nil
	}
	if code, ok := codeOf(t.cause); ok {
		return code
	}
	return t.cause
}

// results is what became of ops.
func (s *Store) results(ops []recipes.Op, t transaction) ([]recipes.OpResult, error) {
	if why := t.reason(); why != nil {
		return nil, &recipes.MultiError{Index: t.refused, Op: ops[t.refused], Err: why}
	}
	if len(t.responses) != len(ops) {
		return nil, fmt.Errorf("%w: %d results for %d operations", recipes.ErrUncertain, len(t.responses), len(ops))
	}
	results := make([]recipes.OpResult, len(ops))
	for i, r := range t.responses {
		switch ops[i].Kind {
		case recipes.KindCreate:
			results[i].Path = s.own(r.String)
		case recipes.KindSet:
			results[i].Stat = statOf(r.Stat)
		}
	}
	return results, nil
}
