package znode

// Access is what an operation needs of whoever asks for it: a permission, and in whose
// access list. Each operation has one (wire.AccessOf has them all); how it is judged is
// said here and nowhere else, for the state machine and for reads alike.
type Access uint8

const (
	AccessDenied  Access = iota // nobody, not even super: the operation has no row
	AccessServer                // the server itself and no client
	AccessSession               // a session, and nothing more
	AccessRead                  // READ on the znode
	AccessReadACL               // READ or ADMIN on the znode
	AccessWrite                 // WRITE on the znode
	AccessAdmin                 // ADMIN on the znode
	AccessCreate                // CREATE on the parent
	AccessDelete                // DELETE on the parent; the znode's own list is not asked
	AccessConfig                // WRITE on ConfigPath
	AccessSuper                 // scheme super
	AccessParts                 // the operation has parts, and each has its own row
)

// accessPerms are the permissions, any of which is enough, of what asks a list.
var accessPerms = [...]int32{
	AccessRead: PermRead, AccessReadACL: PermRead | PermAdmin, AccessWrite: PermWrite, AccessAdmin: PermAdmin,
	AccessCreate: PermCreate, AccessDelete: PermDelete, AccessConfig: PermWrite, AccessParts: 0,
}

// Allowed reports whether ids have what a asks for. acl is the access list that a names;
// nil, which allows everybody, answers whether any list could. What a does not ask a list
// for depends on ids alone.
func (a Access) Allowed(acl []ACL, ids []Identity) bool {
	switch a {
	case AccessSession, AccessParts:
		return true
	case AccessSuper:
		return isSuper(ids)
	}
	perm := int32(0)
	if int(a) < len(accessPerms) {
		perm = accessPerms[a]
	}
	return perm != 0 && permits(acl, perm, ids)
}

// permits reports whether ids may do what any of the bits in perm stands for. Entries
// are OR-ed, and an empty list permits everything: no client can store one.
func permits(acl []ACL, perm int32, ids []Identity) bool {
	if len(acl) == 0 {
		return true
	}
	for i := range acl {
		if e := &acl[i]; e.Perms&perm != 0 && e.Scheme == "world" && e.ID == "anyone" {
			return true
		}
	}
	if isSuper(ids) {
		return true
	}
	for i := range acl {
		if acl[i].Perms&perm == 0 {
			continue
		}
		for j := range ids {
			if ids[j].Scheme == acl[i].Scheme && matches(&acl[i], ids[j].ID) {
				return true
			}
		}
	}
	return false
}

// isSuper reports whether one of the identities passes every check.
func isSuper(ids []Identity) bool {
	for i := range ids {
		if ids[i].Scheme == "super" {
			return true
		}
	}
	return false
}
