package znode

// Error is the outcome of an operation. Its values are ZooKeeper's error codes, so
// that no door needs a table to translate them; 0 is success. Compare with == or
// errors.Is.
type Error int32

// The codes a server sends, from ZooKeeper's KeeperException.Code.
const (
	OK                      Error = 0
	SystemError             Error = -1
	RuntimeInconsistency    Error = -2 // multi: an operation behind the one that failed
	DataInconsistency       Error = -3
	ConnectionLoss          Error = -4
	MarshallingError        Error = -5
	Unimplemented           Error = -6
	OperationTimeout        Error = -7
	BadArguments            Error = -8
	UnknownSession          Error = -12
	NewConfigNoQuorum       Error = -13
	ReconfigInProgress      Error = -14
	NoNode                  Error = -101
	NoAuth                  Error = -102
	BadVersion              Error = -103
	NoChildrenForEphemerals Error = -108
	NodeExists              Error = -110
	NotEmpty                Error = -111
	SessionExpired          Error = -112
	InvalidACL              Error = -114
	AuthFailed              Error = -115
	SessionMoved            Error = -118
	NotReadOnly             Error = -119
	NoWatcher               Error = -121
	ReconfigDisabled        Error = -123
	QuotaExceeded           Error = -125
	ThrottledOp             Error = -127
)
