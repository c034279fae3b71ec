package wire

import "github.com/tenure-dev/tenure/znode"

// AccessOf is the table of permissions: what each operation needs of whoever asks for it.
// What has no row here is refused, whoever asks.
func AccessOf(op Op) znode.Access {
	switch op {
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2, OpList, OpGetAllChildrenNumber, OpCheck:
		return znode.AccessRead
	case OpGetACL:
		return znode.AccessReadACL
	case OpSetData:
		return znode.AccessWrite
	case OpSetACL:
		return znode.AccessAdmin
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		return znode.AccessCreate
	case OpDelete:
		return znode.AccessDelete
	case OpReconfig:
		return znode.AccessConfig
	case OpMulti, OpMultiRead, OpWith:
		return znode.AccessParts
	// Watches may be set by anybody: who may read is asked when an event is due. A
	// session's own ephemerals, and whether what it names by czxid exists (renew), are no
	// secrets to it. Nor are sessions, shown without their passwords, and members.
	case OpPing, OpSync, OpAuth, OpSASL, OpWhoAmI, OpCloseSession, OpGetEphemerals,
		OpAddWatch, OpSetWatches, OpSetWatches2, OpRewatch, OpCheckWatches, OpRemoveWatches,
		OpRenew, OpSessions, OpStatus, OpMembers:
		return znode.AccessSession
	case OpKillSession, OpChangeMembers, OpTransferLead:
		return znode.AccessSuper
	case OpDeleteContainer:
		return znode.AccessServer
	}
	return znode.AccessDenied
}
