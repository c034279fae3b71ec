package wire

import "github.com/tenure-dev/tenure/znode"

// multiHeader reads int type, boolean done, int err: in front of every operation and
// result of a multi, and at its end with done set.
func (r *juteReader) multiHeader() (op Op, done bool) {
	op, done = Op(r.int()), r.bool()
	r.int()
	return op, done || r.failed()
}

func putMultiHeader(dst []byte, op Op, err int32) []byte {
	return putInt(putBool(putInt(dst, int32(op)), false), err)
}

func putMultiEnd(dst []byte) []byte {
	return putInt(putBool(putInt(dst, int32(opError)), true), -1)
}

// multi reads the operations of OpMulti. What is wrong with the record of one of them, also
// most flags that alone would be BadArguments, fails all (ZooKeeper since 3.8.2).
func (r *juteReader) multi() *znode.Multi {
	m := &znode.Multi{}
	for op, done := r.multiHeader(); !done; op, done = r.multiHeader() {
		if w := r.multiOp(op); w != nil {
			m.Ops = append(m.Ops, w)
		}
	}
	return m
}

func (r *juteReader) multiOp(op Op) znode.Op {
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		return r.multiCreate(op)
	case OpDelete:
		return &znode.Delete{Path: r.path(), Version: r.int()}
	case OpSetData:
		return &znode.SetData{Path: r.path(), Data: r.data(), Version: r.int()}
	case OpCheck:
		return &znode.Check{Path: r.path(), Version: r.int()}
	}
	r.fail("not an operation for multi", int64(op))
	return nil
}

// multiCreate is create by the rules that ZooKeeper has for flags in a multi.
func (r *juteReader) multiCreate(op Op) *znode.Create {
	c, flags, ok := r.create(op)
	switch {
	case op == OpCreateTTL:
		if !ok { // BadArguments when its turn comes: no mode goes with this lifetime
			c.Mode, c.TTLMs = znode.Mode{}, -1
		}
	case !ok || c.Mode.Kind == znode.TTL:
		r.fail("create does not take flags", int64(flags))
	case flags == 4:
		c.Mode.Kind, c.WantStat = znode.Container, true
	}
	return c
}

func putMulti(dst []byte, m *znode.Multi) []byte {
	for _, w := range m.Ops {
		op := OpOf(w)
		dst = putWrite(putMultiHeader(dst, op, -1), op, w)
	}
	return putMultiEnd(dst)
}

func (r *juteReader) multiRead() *MultiRead {
	m := &MultiRead{}
	for op, done := r.multiHeader(); !done; op, done = r.multiHeader() {
		if op != OpGetData && op != OpGetChildren {
			r.fail("not an operation for multiRead", int64(op))
			break
		}
		m.Ops = append(m.Ops, ReadOp{Op: op, Path: r.path()})
		r.bool() // a watch is never set
	}
	return m
}

func putMultiRead(dst []byte, m *MultiRead) []byte {
	for _, op := range m.Ops {
		dst = putMultiHeader(dst, op.Op, -1)
		dst = putBool(putStr(dst, op.Path), false)
	}
	return putMultiEnd(dst)
}

// putMultiResult appends the results of a multi. If it failed they are all errors, also
// those of the operations that would have succeeded.
func putMultiResult(dst []byte, m *znode.Result) []byte {
	for i := range m.Sub {
		s := &m.Sub[i]
		if m.Err != znode.OK {
			dst = putMultiError(dst, s.Err)
			continue
		}
		dst = putMultiHeader(dst, resultOp(s.Kind), 0)
		dst = putResult(dst, s)
	}
	return putMultiEnd(dst)
}

func putMultiError(dst []byte, e znode.Error) []byte {
	return putInt(putMultiHeader(dst, opError, int32(e)), int32(e))
}

// resultOp is the type of a result in a multi. A plain create must be 1: some clients
// cannot parse 15 there.
func resultOp(k znode.ResultKind) Op {
	switch k {
	case znode.ResultCreate:
		return OpCreate
	case znode.ResultCreateStat:
		return OpCreate2
	case znode.ResultDelete:
		return OpDelete
	case znode.ResultSetData:
		return OpSetData
	case znode.ResultCheck:
		return OpCheck
	}
	panic("wire: a multi has no result of kind " + kindName(k))
}

// multiResult reads what putMultiResult appends. Err is the error of the operation that
// failed: the first that is neither OK nor RuntimeInconsistency.
func (r *juteReader) multiResult() *znode.Result {
	m := &znode.Result{Kind: znode.ResultMulti}
	errors := 0
	for op, done := r.multiHeader(); !done; op, done = r.multiHeader() {
		s := r.multiResultOp(op)
		m.Sub = append(m.Sub, s)
		m.Err = firstError(m.Err, s.Err)
		if op == opError {
			errors++
		}
	}
	if errors > 0 && (errors < len(m.Sub) || m.Err == znode.OK) {
		r.fail("a multi neither succeeded nor failed; errors", int64(errors))
	}
	return m
}

// firstError is the error of a multi, of which e was found in its results so far and next
// is that of the next result.
func firstError(e, next znode.Error) znode.Error {
	if e == znode.OK || e == znode.RuntimeInconsistency && next != znode.OK {
		return next
	}
	return e
}

func (r *juteReader) multiResultOp(op Op) znode.Result {
	switch op {
	case OpCreate:
		return znode.Result{Kind: znode.ResultCreate, Path: r.str()}
	case OpCreate2:
		return znode.Result{Kind: znode.ResultCreateStat, Path: r.str(), Stat: r.stat()}
	case OpDelete:
		return znode.Result{Kind: znode.ResultDelete}
	case OpSetData:
		return znode.Result{Kind: znode.ResultSetData, Stat: r.stat()}
	case OpCheck:
		return znode.Result{Kind: znode.ResultCheck}
	case opError:
		return znode.Result{Err: znode.Error(r.int())}
	}
	r.fail("not a result of a multi", int64(op))
	return znode.Result{}
}

func putMultiReadReply(dst []byte, m *MultiReadReply) []byte {
	for i := range m.Results {
		x := &m.Results[i]
		switch {
		case x.Err != znode.OK:
			dst = putMultiError(dst, x.Err)
		case x.Op == OpGetData:
			dst = putMultiHeader(dst, OpGetData, 0)
			dst = putStat(putData(dst, x.Data.Data), &x.Data.Stat)
		default:
			dst = putMultiHeader(dst, OpGetChildren, 0)
			dst = putStrs(dst, x.Children.Names)
		}
	}
	return putMultiEnd(dst)
}

func (r *juteReader) multiReadReply() *MultiReadReply {
	m := &MultiReadReply{}
	for op, done := r.multiHeader(); !done; op, done = r.multiHeader() {
		x := ReadResult{Op: op}
		switch op {
		case OpGetData:
			x.Data = DataReply{Data: r.data(), Stat: r.stat()}
		case OpGetChildren:
			x.Children.Names = r.names()
		case opError: // which read it was is not said
			if x.Op, x.Err = 0, znode.Error(r.int()); x.Err == znode.OK {
				r.fail("an error that is none", 0)
			}
		default:
			r.fail("not a result of multiRead", int64(op))
		}
		m.Results = append(m.Results, x)
	}
	return m
}
