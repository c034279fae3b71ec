package znode

import "strconv"

// Error is the outcome of an operation. Its values are ZooKeeper's error codes, so
// that no door needs a table to translate them; 0 is success. Compare with == or
// errors.Is.
type Error int32

// The codes of ZooKeeper's KeeperException.Code and of its C client. Those marked
// "client" are never sent by a server; they are here so that each has its name.
const (
	OK                           Error = 0
	SystemError                  Error = -1
	RuntimeInconsistency         Error = -2 // multi: an operation behind the one that failed
	DataInconsistency            Error = -3
	ConnectionLoss               Error = -4 // client
	MarshallingError             Error = -5
	Unimplemented                Error = -6
	OperationTimeout             Error = -7 // client
	BadArguments                 Error = -8
	InvalidState                 Error = -9 // client
	UnknownSession               Error = -12
	NewConfigNoQuorum            Error = -13
	ReconfigInProgress           Error = -14
	SSLConnectionError           Error = -15  // client
	APIError                     Error = -100 // marks the range below it
	NoNode                       Error = -101
	NoAuth                       Error = -102
	BadVersion                   Error = -103
	NoChildrenForEphemerals      Error = -108
	NodeExists                   Error = -110
	NotEmpty                     Error = -111
	SessionExpired               Error = -112
	InvalidCallback              Error = -113 // client
	InvalidACL                   Error = -114
	AuthFailed                   Error = -115
	Closing                      Error = -116 // client
	Nothing                      Error = -117 // client
	SessionMoved                 Error = -118
	NotReadOnly                  Error = -119
	EphemeralOnLocalSession      Error = -120
	NoWatcher                    Error = -121
	RequestTimeout               Error = -122 // client
	ReconfigDisabled             Error = -123
	SessionClosedRequireSASLAuth Error = -124
	QuotaExceeded                Error = -125
	ThrottledOp                  Error = -127
)

var errorNames = map[Error]string{
	OK:                           "OK",
	SystemError:                  "SystemError",
	RuntimeInconsistency:         "RuntimeInconsistency",
	DataInconsistency:            "DataInconsistency",
	ConnectionLoss:               "ConnectionLoss",
	MarshallingError:             "MarshallingError",
	Unimplemented:                "Unimplemented",
	OperationTimeout:             "OperationTimeout",
	BadArguments:                 "BadArguments",
	InvalidState:                 "InvalidState",
	UnknownSession:               "UnknownSession",
	NewConfigNoQuorum:            "NewConfigNoQuorum",
	ReconfigInProgress:           "ReconfigInProgress",
	SSLConnectionError:           "SSLConnectionError",
	APIError:                     "APIError",
	NoNode:                       "NoNode",
	NoAuth:                       "NoAuth",
	BadVersion:                   "BadVersion",
	NoChildrenForEphemerals:      "NoChildrenForEphemerals",
	NodeExists:                   "NodeExists",
	NotEmpty:                     "NotEmpty",
	SessionExpired:               "SessionExpired",
	InvalidCallback:              "InvalidCallback",
	InvalidACL:                   "InvalidACL",
	AuthFailed:                   "AuthFailed",
	Closing:                      "Closing",
	Nothing:                      "Nothing",
	SessionMoved:                 "SessionMoved",
	NotReadOnly:                  "NotReadOnly",
	EphemeralOnLocalSession:      "EphemeralOnLocalSession",
	NoWatcher:                    "NoWatcher",
	RequestTimeout:               "RequestTimeout",
	ReconfigDisabled:             "ReconfigDisabled",
	SessionClosedRequireSASLAuth: "SessionClosedRequireSASLAuth",
	QuotaExceeded:                "QuotaExceeded",
	ThrottledOp:                  "ThrottledOp",
}

// Name returns the constant's name, such as NoNode, or Unknown for a code that
// ZooKeeper does not have.
func (e Error) Name() string {
	if name, ok := errorNames[e]; ok {
		return name
	}
	return "Unknown"
}

// Error returns name and number, such as "NoNode (-101)".
func (e Error) Error() string {
	return e.Name() + " (" + strconv.Itoa(int(e)) + ")"
}
