package wire

import (
	"fmt"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// JSON is the encoding for people and for languages without a client: one object per
// message, described in docs/protocol.md. Fields of requests that it does not know are
// refused, because a misspelt option would otherwise be taken for its default; those of
// replies are ignored, so that a server may say more. JSON has no state and may be used
// by any number of goroutines.
type JSON struct{}

var (
	_ ServerCodec = JSON{}
	_ ClientCodec = JSON{}
)

// DecodeConnect decodes {"op":"connect",...}. All other fields are optional.
func (JSON) DecodeConnect(msg []byte) (ConnectRequest, error) {
	c, r := ConnectRequest{}, jsonReader{buf: msg}
	isConnect := false
	for at := r.object(); r.more('}', &at); {
		switch string(r.key()) {
		case "op":
			isConnect = r.str() == "connect"
		case "timeoutMs":
			c.TimeoutMs = r.int()
		case "session":
			c.Session = session.ID(r.long())
		case "password":
			c.Password = r.data()
		case "lastZxid":
			c.LastZxid = r.long()
		case "readOnly":
			readOnly := r.bool()
			c.ReadOnly = &readOnly
		default:
			r.refuse("is unknown")
			r.skip()
		}
	}
	if err := r.done("connect request"); err != nil {
		return ConnectRequest{}, err
	}
	if !isConnect {
		return ConnectRequest{}, fmt.Errorf(`wire: connect request: the first message must have "op":"connect"`)
	}
	return c, nil
}

// done checks that the text ends and that nothing was wrong with it.
func (r *jsonReader) done(what string) error {
	r.end()
	return r.problem(what)
}

// problem is what was found so far as an error of decoding what.
func (r *jsonReader) problem(what string) error {
	switch {
	case r.syntax != "":
		return fmt.Errorf("wire: %s: not JSON: %s", what, r.syntax)
	case r.wrong != "":
		return fmt.Errorf("wire: %s: %s", what, r.wrong)
	}
	return nil
}

// AppendConnect appends a connect request.
func (JSON) AppendConnect(dst []byte, c *ConnectRequest) []byte {
	dst = addInt(append(dst, `{"op":"connect"`...), "timeoutMs", c.TimeoutMs)
	dst = addData(addLong(dst, "session", int64(c.Session)), "password", c.Password)
	dst = addLong(dst, "lastZxid", c.LastZxid)
	if c.ReadOnly != nil {
		dst = addBool(dst, "readOnly", *c.ReadOnly)
	}
	return append(dst, '}')
}

// AppendConnectReply appends the answer to a connect request.
func (JSON) AppendConnectReply(dst []byte, c *ConnectReply) []byte {
	dst = addInt(append(dst, `{"op":"connect"`...), "timeoutMs", c.TimeoutMs)
	dst = addData(addLong(dst, "session", int64(c.Session)), "password", c.Password[:])
	if c.ReadOnly != nil {
		dst = addBool(dst, "readOnly", *c.ReadOnly)
	}
	return append(dst, '}')
}

// DecodeConnectReply decodes what AppendConnectReply appends.
func (JSON) DecodeConnectReply(msg []byte) (ConnectReply, error) {
	c, r := ConnectReply{}, jsonReader{buf: msg}
	var password []byte
	for at := r.object(); r.more('}', &at); {
		switch string(r.key()) {
		case "timeoutMs":
			c.TimeoutMs = r.int()
		case "session":
			c.Session = session.ID(r.long())
		case "password":
			password = r.data()
		case "readOnly":
			readOnly := r.bool()
			c.ReadOnly = &readOnly
		default:
			r.skip()
		}
	}
	if err := r.done("connect reply"); err != nil {
		return ConnectReply{}, err
	}
	if copy(c.Password[:], password) != len(password) || len(password) != session.PasswordSize {
		return ConnectReply{}, fmt.Errorf("wire: connect reply: password has %d bytes, not %d",
			len(password), session.PasswordSize)
	}
	return c, nil
}

// DecodeRequest decodes one request. It fails if msg is not one JSON object with an xid
// and an op; anything else that is wrong is in the Request.
func (JSON) DecodeRequest(msg []byte) (Request, error) {
	r := jsonReader{buf: msg}
	var f jsonFields
	f.read(&r, false)
	if r.end(); r.syntax != "" {
		return Request{}, fmt.Errorf("wire: request: not JSON: %s", r.syntax)
	}
	if missing := (fieldXid | fieldOp) &^ f.seen; missing != 0 {
		return Request{}, fmt.Errorf("wire: request: no %s that can be read", missing.first())
	}
	q := Request{Xid: f.xid, Seq: f.seq, Acked: f.acked, Stale: f.stale}
	spec, ok := jsonOps[f.op]
	if !ok || spec.op == OpCheck {
		q.refuse(znode.Unimplemented, fmt.Sprintf("%.40q is not an operation for clients", f.op))
		return q, nil
	}
	q.Op = spec.op
	f.check(&r, spec, jsonEnvelope)
	q.Body = f.body(&r, spec.op)
	if r.wrong != "" {
		code := f.refused
		if code == znode.OK {
			code = znode.MarshallingError
		}
		q.refuse(code, r.wrong)
		return q, nil
	}
	if c, ok := q.Body.(*znode.Create); ok {
		q.Op = OpOf(c)
	}
	return q, nil
}

// AppendEvent appends an event.
func (JSON) AppendEvent(dst []byte, e *Event) []byte {
	name, ok := eventNames[e.Type]
	if !ok {
		panic(fmt.Sprintf("wire: no event has type %d", e.Type))
	}
	dst = append(append(append(dst, `{"event":"`...), name...), '"')
	return append(addLong(addStr(dst, "path", e.Path), "zxid", e.Zxid), '}')
}
