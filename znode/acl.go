package znode

import (
	"net/netip"
	"slices"
	"strings"
)

// Permission bits of an ACL entry.
const (
	PermRead   int32 = 1
	PermWrite  int32 = 2
	PermCreate int32 = 4
	PermDelete int32 = 8
	PermAdmin  int32 = 16
	PermAll    int32 = 31
)

// ACLEntriesMax bounds a list, as given and after expansion. ZooKeeper has no bound
// of its own; without one a request could make every later check of it slow.
const ACLEntriesMax = 1024

// ACL is one entry of an access list. Unknown permission bits are kept as given.
type ACL struct {
	Perms  int32  `json:"perms"`
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

// Identity is one of the identities of a connection: its ip address, and what
// addauth added. Scheme "super" passes every check.
type Identity struct {
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

// OpenACL lets everybody do everything: world:anyone:cdrwa.
var OpenACL = []ACL{{Perms: PermAll, Scheme: "world", ID: "anyone"}}

func matches(e *ACL, id string) bool {
	switch e.Scheme {
	case "ip":
		prefix, ok := parsePrefix(e.ID)
		addr, err := netip.ParseAddr(id)
		return ok && err == nil && prefix.Contains(addr.Unmap().WithZone(""))
	case "sasl":
		return e.ID == id || id == "super"
	}
	return e.ID == id
}

// parsePrefix takes an address, or an address and a prefix length.
func parsePrefix(s string) (netip.Prefix, bool) {
	if strings.IndexByte(s, '/') >= 0 {
		p, err := netip.ParsePrefix(s)
		return p, err == nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// MaskACL is what getACL shows to ids: without PermAdmin the hashes in digest
// entries are replaced by x (CVE-2019-0201). acl itself is not changed.
func MaskACL(acl []ACL, ids []Identity) []ACL {
	if AccessAdmin.Allowed(acl, ids) {
		return acl
	}
	masked := slices.Clone(acl)
	for i := range masked {
		if e := &masked[i]; e.Scheme == "digest" {
			user, _, _ := strings.Cut(e.ID, ":")
			e.ID = user + ":x"
		}
	}
	return masked
}

// normalizeACL is ZooKeeper's fixupACL: it checks every entry, replaces "auth"
// entries by one per authenticated identity in the order of ids, and removes
// duplicates. A list that is normal already is returned as it is. ok is false where
// the answer is InvalidACL.
func normalizeACL(acl []ACL, ids []Identity) (normal []ACL, ok bool) {
	if len(acl) == 0 || len(acl) > ACLEntriesMax {
		return nil, false
	}
	if len(acl) == 1 && acl[0].Scheme != "auth" {
		return acl, validEntry(&acl[0])
	}
	normal = make([]ACL, 0, len(acl))
	seen := make(map[ACL]bool, len(acl))
	add := func(e ACL) {
		if !seen[e] {
			seen[e] = true
			normal = append(normal, e)
		}
	}
	for i := range acl {
		e := &acl[i]
		if e.Scheme != "auth" {
			if !validEntry(e) {
				return nil, false
			}
			add(*e)
			continue
		}
		authenticated := false
		for _, id := range ids {
			if isAuthentication(id.Scheme) {
				authenticated = true
				add(ACL{Perms: e.Perms, Scheme: id.Scheme, ID: id.ID})
			}
		}
		if !authenticated || len(normal) > ACLEntriesMax {
			return nil, false
		}
	}
	return normal, true
}

// isAuthentication tells the schemes whose identities were proven: "auth" does not
// expand to an address, nor to super.
func isAuthentication(scheme string) bool {
	switch scheme {
	case "digest", "x509", "sasl", "token":
		return true
	}
	return false
}

func validEntry(e *ACL) bool {
	switch e.Scheme {
	case "world":
		return e.ID == "anyone"
	case "digest":
		// Java's split at ":" drops empty parts at the end; two must remain.
		return strings.Count(strings.TrimRight(e.ID, ":"), ":") == 1
	case "ip":
		_, ok := parsePrefix(e.ID)
		return ok
	case "x509":
		return validDN(e.ID)
	case "sasl", "token":
		return validPrincipal(e.ID)
	}
	return false
}

// storable is what holds for every list in a state. It is less than what a client's
// list must pass: what "auth" expands to is as the connection proved it.
func storable(acl []ACL) bool {
	for i := range acl {
		if scheme := acl[i].Scheme; scheme != "world" && scheme != "ip" && !isAuthentication(scheme) {
			return false
		}
	}
	return len(acl) > 0 && len(acl) <= ACLEntriesMax
}

// validPrincipal takes what names somebody: not empty, no control characters.
func validPrincipal(id string) bool {
	return id != "" && brokenCharacterRule(id) == ""
}

// validDN reports whether s has the form of a distinguished name (RFC 2253):
// type=value pairs, separated by , ; or +, which a backslash or quotes take
// literally.
func validDN(s string) bool {
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
			if i >= len(s) {
				return false
			}
		case '"':
			quoted = !quoted
		case ',', ';', '+':
			if quoted {
				continue
			}
			if !validRDN(s[start:i]) {
				return false
			}
			start = i + 1
		}
	}
	return !quoted && validRDN(s[start:])
}

func validRDN(s string) bool {
	kind, _, ok := strings.Cut(strings.TrimSpace(s), "=")
	kind = strings.TrimSpace(kind)
	if !ok || kind == "" {
		return false
	}
	for i := 0; i < len(kind); i++ {
		c := kind[i] | 0x20
		if !(c >= 'a' && c <= 'z' || kind[i] >= '0' && kind[i] <= '9' || kind[i] == '.' || kind[i] == '-') {
			return false
		}
	}
	return true
}
