package wire

import (
	"math/bits"

	"github.com/tenure-dev/tenure/znode"
)

// jsonSet is a set of the fields that a request in JSON may have.
type jsonSet uint64

const (
	fieldXid jsonSet = 1 << iota
	fieldOp
	fieldSeq
	fieldAcked
	fieldStale
	fieldPath
	fieldData
	fieldACL
	fieldMode
	fieldTTL
	fieldStat
	fieldVersion
	fieldWatch
	fieldOps
	fieldRelZxid
	fieldWatches
	fieldRecursive
	fieldType
	fieldJoining
	fieldLeaving
	fieldNewMembers
	fieldConfigID
	fieldHeld
	fieldAfter
	fieldLimit
	fieldStats
	fieldSession
	fieldScheme
	fieldToken
	fieldNumber
	fieldSteps
	fieldMember
)

// jsonFieldNames are the names of the fields, in the order of their bits.
var jsonFieldNames = [...]string{
	"xid", "op", "seq", "acked", "stale", "path", "data", "acl", "mode", "ttlMs", "stat",
	"version", "watch", "ops", "relZxid", "watches", "recursive", "type", "joining",
	"leaving", "newMembers", "configId", "held", "after", "limit", "stats", "session",
	"scheme", "token", "number", "steps", "member",
}

var jsonFieldOf = func() map[string]jsonSet {
	m := make(map[string]jsonSet, len(jsonFieldNames))
	for i, name := range jsonFieldNames {
		m[name] = 1 << i
	}
	return m
}()

// first names the first field of the set.
func (s jsonSet) first() string { return jsonFieldNames[bits.TrailingZeros64(uint64(s))] }

// jsonOp says which fields an operation must and may have besides those of every request.
type jsonOp struct {
	op           Op
	needs, takes jsonSet
}

// jsonEnvelope are the fields that every request may have. Inside ops it is fieldOp only.
const jsonEnvelope = fieldXid | fieldOp | fieldSeq | fieldAcked | fieldStale

// jsonOps are the operations by their name. A create's Op follows from its mode.
var jsonOps = map[string]jsonOp{
	"create":           {OpCreate, fieldPath, fieldData | fieldACL | fieldMode | fieldTTL | fieldStat},
	"delete":           {OpDelete, fieldPath, fieldVersion},
	"set":              {OpSetData, fieldPath, fieldData | fieldVersion},
	"setACL":           {OpSetACL, fieldPath | fieldACL, fieldVersion},
	"check":            {OpCheck, fieldPath, fieldVersion},
	"multi":            {OpMulti, fieldOps, 0},
	"multiRead":        {OpMultiRead, fieldOps, 0},
	"exists":           {OpExists, fieldPath, fieldWatch},
	"get":              {OpGetData, fieldPath, fieldWatch},
	"childNames":       {OpGetChildren, fieldPath, fieldWatch},
	"children":         {OpGetChildren2, fieldPath, fieldWatch},
	"list":             {OpList, fieldPath, fieldAfter | fieldLimit | fieldStats},
	"getACL":           {OpGetACL, fieldPath, 0},
	"countDescendants": {OpGetAllChildrenNumber, fieldPath, 0},
	"sync":             {OpSync, 0, fieldPath},
	"ephemerals":       {OpGetEphemerals, 0, fieldPath},
	"ping":             {OpPing, 0, 0},
	"close":            {OpCloseSession, 0, 0},
	"whoAmI":           {OpWhoAmI, 0, 0},
	"status":           {OpStatus, 0, 0},
	"auth":             {OpAuth, fieldScheme | fieldData, 0},
	"sasl":             {OpSASL, fieldToken, 0},
	"watch":            {OpAddWatch, fieldPath, fieldRecursive},
	"setWatches":       {OpSetWatches, fieldRelZxid | fieldWatches, 0},
	"setWatches2":      {OpSetWatches2, fieldRelZxid | fieldWatches, 0},
	"rewatch":          {OpRewatch, fieldRelZxid | fieldWatches, 0},
	"checkWatches":     {OpCheckWatches, fieldPath | fieldType, 0},
	"removeWatches":    {OpRemoveWatches, fieldPath | fieldType, 0},
	"reconfig":         {OpReconfig, 0, fieldJoining | fieldLeaving | fieldNewMembers | fieldConfigID},
	"renew":            {OpRenew, 0, fieldHeld},
	"sessions":         {OpSessions, 0, fieldAfter | fieldLimit},
	"killSession":      {OpKillSession, fieldSession, 0},
	"members":          {OpMembers, 0, 0},
	"changeMembers":    {OpChangeMembers, fieldSteps, fieldNumber},
	"transferLead":     {OpTransferLead, 0, fieldMember},
}

// jsonName is the name of an operation in JSON: all creates have the same.
func jsonName(op Op) string {
	switch op {
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		op = OpCreate
	}
	return op.String()
}

// writeKind says which result an operation of a multi has, by its name.
func writeKind(name string, stat bool) (znode.ResultKind, bool) {
	switch name {
	case "create":
		if stat {
			return znode.ResultCreateStat, true
		}
		return znode.ResultCreate, true
	case "delete":
		return znode.ResultDelete, true
	case "set":
		return znode.ResultSetData, true
	case "check":
		return znode.ResultCheck, true
	}
	return znode.ResultNone, false
}
