package server

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// simCall is an operation on a register as its client saw it, for a judge who knows nothing
// of zxids or of the log.
type simCall struct {
	path          string
	create, write bool
	data          string // that was written, or read
	version       int32  // that was asked for, or that the register then had
	err           znode.Error
	begun, ended  int64
	client        int
	unknown       bool // no answer came
	wantedVersion int32
}

// simRegister is a znode's data and version.
type simRegister struct {
	exists  bool
	data    string
	version int32
}

// called keeps an operation of a native client on a register, with its answer.
func (c *simClient) called(op *simOp, r *wire.Reply) {
	call := simCall{begun: op.begun, ended: c.sim.now, client: c.id}
	switch b := op.req.Body.(type) {
	case *znode.SetData:
		call.path, call.write, call.data, call.wantedVersion = b.Path, true, string(b.Data), b.Version
	case *znode.Create:
		call.path, call.create = b.Path, true
	case *wire.PathWatch:
		call.path = b.Path
	default:
		return
	}
	if c.zk || op.req.Stale || len(call.path) < 2 || call.path[1] != 'p' {
		return
	}
	if r == nil {
		call.unknown = true
	} else if call.err = r.Err; r.Err == znode.OK {
		switch body := r.Body.(type) {
		case *wire.DataReply:
			call.data, call.version = string(body.Data), body.Stat.Version
		case *znode.Result:
			call.version = body.Stat.Version
		}
	}
	c.sim.calls = append(c.sim.calls, call)
}

// judgeRegisters asks porcupine whether what the native clients saw of the registers that only
// they write is linearizable.
func (s *sim) judgeRegisters() {
	histories := map[string][]porcupine.Operation{}
	for _, call := range s.calls {
		end := call.ended
		if call.unknown {
			end = s.now + 1
		}
		histories[call.path] = append(histories[call.path],
			porcupine.Operation{ClientId: call.client, Input: call, Call: call.begun, Output: call, Return: end})
	}
	model := porcupine.Model{
		Init: func() any { return simRegister{} },
		Step: func(state, input, _ any) (bool, any) { return input.(simCall).step(state.(simRegister)) },
	}
	for path, history := range histories {
		s.counts["operations judged by porcupine"] += int64(len(history))
		switch porcupine.CheckOperationsTimeout(model, history, 5*time.Second) {
		case porcupine.Illegal:
			s.fail("linearizability", "of %s: porcupine finds no order for %d operations", path, len(history))
		case porcupine.Unknown:
			s.counts["registers that porcupine gave up on"]++
		}
	}
}

// step is the register's next state, if the call may take place now.
func (k simCall) step(r simRegister) (bool, simRegister) {
	matches := r.exists && (k.wantedVersion == -1 || k.wantedVersion == r.version)
	next := simRegister{true, k.data, r.version + 1}
	switch {
	case k.create && k.err != znode.OK:
		return true, r // refused, as a full disk is
	case k.create && r.exists:
		return k.unknown, r
	case k.create:
		return true, simRegister{exists: true}
	case k.write && k.unknown:
		if matches {
			return true, next
		}
		return true, r
	case k.write && k.err == znode.OK:
		return matches && k.version == next.version, next
	case k.write && k.err == znode.BadVersion:
		return r.exists && !matches, r
	case k.err == znode.NoNode:
		return !r.exists, r
	case k.write || k.unknown:
		return true, r // refused for another reason, or a read that nobody saw
	}
	return r == simRegister{true, k.data, k.version}, r
}
