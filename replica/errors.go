package replica

import "errors"

// Errors of a Replica's methods.
var (
	// ErrStopped: the member was closed or has failed. Whether what was proposed
	// before is committed is unknown unless the machine saw it.
	ErrStopped = errors.New("replica: stopped")
	// ErrBusy: Options.MaxWaitingBytes are waiting already; nothing was queued.
	ErrBusy = errors.New("replica: too many bytes are waiting to be proposed")
	// ErrNoLeader: this member does not lead in the term (ProposeVolatile), or no leader
	// confirmed itself within three election timeouts (Barrier).
	ErrNoLeader = errors.New("replica: no leader")
	// ErrNoSuccessor: no other voter answers and has all of the log.
	ErrNoSuccessor = errors.New("replica: no other voter is fit to lead")
	// ErrUnreachable: there is no connection to the peer.
	ErrUnreachable = errors.New("replica: not reachable")
)

// Errors of Open, each wrapped with what was found where.
var (
	// ErrCorrupt: the log on disk is damaged: a checksum, a hole between two
	// entries, a term that goes back, or synced data that cannot be read.
	ErrCorrupt = errors.New("replica: log is corrupt")
	// ErrLogBehindState: the state machine has applied entries that the log does
	// not have, so synced entries were lost or the two directories do not belong
	// together.
	ErrLogBehindState = errors.New("replica: the state has applied entries beyond the end of the log")
	// ErrStateBehindLog: entries that the state machine still needs were truncated.
	ErrStateBehindLog = errors.New("replica: the state ends before the beginning of the log")
	// ErrIdentity: the directory belongs to another member.
	ErrIdentity = errors.New("replica: the log belongs to another member")
	// ErrNoNetwork: the log has other members, and there is no way to reach them.
	ErrNoNetwork = errors.New("replica: the log has other members, and there is no network")
)

// ErrWiped: a member came back without what it had: see Replica.Known.
var ErrWiped = errors.New("replica: the member was wiped")
