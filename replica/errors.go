package replica

import "errors"

// Errors of Propose and Barrier.
var (
	// ErrStopped: the member was closed or has failed. Whether what was proposed
	// before is committed is unknown unless the machine saw it.
	ErrStopped = errors.New("replica: stopped")
	// ErrBusy: Options.MaxWaitingBytes are waiting already; nothing was queued.
	ErrBusy = errors.New("replica: too many bytes are waiting to be proposed")
	// ErrNoLeader: this member is not the leader (Propose), or no leader confirmed
	// itself within an election timeout (Barrier).
	ErrNoLeader = errors.New("replica: no leader")
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
)

// errSnapshot is returned for a snapshot that arrives although the state machine has
// no way to install one.
var errSnapshot = errors.New("replica: the state machine cannot install a snapshot")
