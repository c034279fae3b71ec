package client

import (
	"context"
	"math/rand/v2"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// WhoAmI returns the identities of the present connection.
func (c *Client) WhoAmI(ctx context.Context) ([]znode.Identity, error) {
	r, err := ask[*wire.IdentitiesReply](ctx, c, "whoAmI", wire.OpWhoAmI, nil)
	if err != nil {
		return nil, err
	}
	return r.Identities, nil
}

// AddAuth presents one more identity, now and on all later connections. A refused one
// is an *Error with znode.AuthFailed and is not presented again.
func (c *Client) AddAuth(ctx context.Context, a Auth) error {
	cl := c.newCall("auth "+a.Scheme, "", wire.OpAuth, &wire.Auth{Scheme: a.Scheme, Data: []byte(a.Secret)})
	cl.settle = func(rep *wire.Reply, _ bool) {
		if rep != nil && rep.Err == znode.OK {
			c.auth = append(c.auth[:len(c.auth):len(c.auth)], a)
		}
	}
	_, err := c.do(ctx, cl)
	return err
}

// Sessions lists up to limit open sessions with ids after after, 0 = as many as fit.
func (c *Client) Sessions(ctx context.Context, after session.ID, limit int32) (wire.SessionsReply, error) {
	r, err := ask[*wire.SessionsReply](ctx, c, "sessions", wire.OpSessions, &wire.Sessions{After: after, Limit: limit})
	if err != nil {
		return wire.SessionsReply{}, err
	}
	return *r, nil
}

// Status describes the member that the client is connected to.
func (c *Client) Status(ctx context.Context) (wire.StatusReply, error) {
	r, err := ask[*wire.StatusReply](ctx, c, "status", wire.OpStatus, nil)
	if err != nil {
		return wire.StatusReply{}, err
	}
	return *r, nil
}

// KillSession ends another session; for administrators.
func (c *Client) KillSession(ctx context.Context, id session.ID) error {
	_, err := c.do(ctx, c.newCall("killSession", "", wire.OpKillSession, &wire.KillSession{Session: id}))
	return err
}

// Members lists the members of the ensemble, as the leader sees them if it can be reached.
func (c *Client) Members(ctx context.Context) (wire.MembersReply, error) {
	return c.members(ctx, "members", wire.OpMembers, nil)
}

// ChangeMembers changes the members of the ensemble and returns when that is done; for
// administrators. Several steps take effect together. What the rules forbid is an *Error with
// BadArguments, ReconfigInProgress or NewConfigNoQuorum, whose Detail says which rule; with
// OperationTimeout the change may still happen.
func (c *Client) ChangeMembers(ctx context.Context, steps ...wire.MemberStep) (wire.MembersReply, error) {
	return c.members(ctx, "changeMembers", wire.OpChangeMembers, &wire.ChangeMembers{Number: rand.Int64() | 1, Steps: steps})
}

// TransferLead makes member id the leader, or with 0 whoever is fit best, and returns when
// the lead has moved; for administrators. Errors are those of ChangeMembers.
func (c *Client) TransferLead(ctx context.Context, id int32) (wire.MembersReply, error) {
	return c.members(ctx, "transferLead", wire.OpTransferLead, &wire.TransferLead{ID: id})
}

func (c *Client) members(ctx context.Context, op string, wop wire.Op, body any) (wire.MembersReply, error) {
	r, err := ask[*wire.MembersReply](ctx, c, op, wop, body)
	if err != nil {
		return wire.MembersReply{}, err
	}
	return *r, nil
}

// ask sends a request that proves nothing about the session.
func ask[B any](ctx context.Context, c *Client, op string, wop wire.Op, body any) (B, error) {
	rep, err := c.do(ctx, c.newCall(op, "", wop, body))
	if err != nil {
		var zero B
		return zero, err
	}
	return bodyOf[B](rep)
}
