package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/replica"
)

// PeerTLSConfig names the files of TLS between members, all PEM, all or none. They are read
// again when they change.
type PeerTLSConfig struct {
	// CertFile and KeyFile are what this member shows to others, whether it dials or
	// accepts: the certificate is valid for both uses, and for the host of its address.
	CertFile, KeyFile string
	// CAFile holds the authorities that the other members' certificates are verified
	// against. Whoever has a certificate of theirs for a member's host can be that member.
	CAFile string
}

// Member is a member's id and the address at which the others reach it.
type Member struct {
	ID      uint64
	Address string
}

// parseMember reads one item of initial-members. Its error is the rule.
func parseMember(text string) (Member, error) {
	id, addr, _ := strings.Cut(text, "=")
	n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 64)
	if err != nil || n == 0 || n > replica.MaxMemberID {
		return Member{}, rule("%q must be ID=HOST:PORT with an id from 1 to %d, as in 1=zoo1:2182", text, replica.MaxMemberID)
	}
	addr, err = canonicalAddress(strings.TrimSpace(addr))
	if err != nil {
		return Member{}, rule("%q: the address %w", text, err)
	}
	return Member{n, addr}, nil
}

// canonicalAddress is an address that can be dialed, written the one way that everybody
// writes it, so that the members' settings can be compared.
func canonicalAddress(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil || n == 0 || host == "" || strings.ContainsAny(host, " \t/@*=,") {
		return "", rule("must be HOST:PORT with a port from 1 to 65535, as in zoo1:2182 or [::1]:2182")
	}
	host = strings.ToLower(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() {
			return "", rule("must be one that others can dial, not %s, which means all of a machine's own", host)
		}
		host = ip.String()
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// isMember is the rule of one item of initial-members.
func isMember(text string) error {
	_, err := parseMember(text)
	return err
}

// isDialable is the rule of an address that others dial.
func isDialable(text string) error {
	_, err := canonicalAddress(text)
	return err
}

// isClusterName is the rule of a cluster's name.
func isClusterName(text string) error {
	if len(text) > 64 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return rule("must be a name of at most 64 printable ASCII characters without blanks")
	}
	return nil
}

// isClusterID is the rule of a cluster's id.
func isClusterID(text string) error {
	if n, err := strconv.ParseUint(text, 16, 64); err != nil || n == 0 || len(text) != 16 {
		return rule("must be 16 hexadecimal digits, as `tenure member add` prints them")
	}
	return nil
}

// Members returns initial-members in the order of their ids. The configuration must be
// valid.
func (c *Config) Members() []Member {
	members := make([]Member, 0, len(c.InitialMembers))
	for _, text := range c.InitialMembers {
		if m, err := parseMember(text); err == nil {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return members
}

// Cluster returns the id that tells this ensemble from others. Who founds an ensemble
// derives it from its name and its first members, so that all founders have the same
// without talking; who joins one is given it. 0: a sole founder, whose log draws one.
func (c *Config) Cluster() uint64 {
	if c.ClusterID != "" {
		id, _ := strconv.ParseUint(c.ClusterID, 16, 64) // valid
		return id
	}
	if len(c.InitialMembers) == 0 {
		return 0
	}
	text := c.ClusterName
	for _, m := range c.Members() {
		text += fmt.Sprintf("\n%d=%s", m.ID, m.Address)
	}
	sum := sha256.Sum256([]byte(text))
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}

// Advertise returns the address at which the other members reach this one: peer-advertise,
// else its own in initial-members, else peer-listen; "" without peer-listen.
func (c *Config) Advertise() string {
	switch {
	case !c.hasPeers():
		return ""
	case c.PeerAdvertise != "":
		addr, _ := canonicalAddress(c.PeerAdvertise) // valid
		return addr
	}
	for _, m := range c.Members() {
		if m.ID == uint64(c.MemberID) {
			return m.Address
		}
	}
	return c.PeerListen
}

// hasPeers reports whether this member speaks to others.
func (c *Config) hasPeers() bool { return c.PeerListen != "" && c.PeerListen != addressNone }

// validateMembers checks what the settings of the ensemble say together.
func (c *Config) validateMembers(fail func(key, value, rule string)) {
	c.validateList(fail)
	if c.Join {
		switch list := strings.Join(c.InitialMembers, ","); {
		case c.ClusterID == "":
			fail("join", "true", "needs cluster-id, which `tenure member add` prints")
		case list == "":
			fail("join", "true", "needs initial-members: the members to join, ID=HOST:PORT of one or more")
		}
	} else if c.ClusterID != "" {
		fail("cluster-id", c.ClusterID, "has no effect without join: founders derive it from cluster and initial-members")
	}
	if !c.hasPeers() {
		for _, s := range []struct{ key, value string }{
			{"initial-members", strings.Join(c.InitialMembers, ",")}, {"peer-advertise", c.PeerAdvertise},
			{"peer-tls-cert", c.PeerTLS.CertFile}, {"peer-tls-key", c.PeerTLS.KeyFile}, {"peer-tls-ca", c.PeerTLS.CAFile},
		} {
			if s.value != "" {
				fail(s.key, s.value, "needs peer-listen, the address at which this member listens for the others")
			}
		}
		return
	}
	c.validatePeerDoor(fail)
}

// validateList checks initial-members as a whole.
func (c *Config) validateList(fail func(key, value, rule string)) {
	list := strings.Join(c.InitialMembers, ",")
	ids, addresses := map[uint64]bool{}, map[string]uint64{}
	for _, m := range c.Members() {
		if ids[m.ID] {
			fail("initial-members", list, fmt.Sprintf("has member %d twice", m.ID))
		}
		if first, taken := addresses[m.Address]; taken && first != m.ID {
			fail("initial-members", list, fmt.Sprintf("has the address %s twice, of members %d and %d", m.Address, first, m.ID))
		}
		ids[m.ID], addresses[m.Address] = true, m.ID
	}
	switch self := uint64(c.MemberID); {
	case len(ids) > 0 && !c.Join && !ids[self]:
		fail("initial-members", list, fmt.Sprintf("must contain this member: member-id is %d", self))
	case len(ids) == 1 && c.Join && ids[self]:
		fail("initial-members", list, "must name another member than this one, to join")
	}
}

// validatePeerDoor checks the address for the other members and what secures it.
func (c *Config) validatePeerDoor(fail func(key, value, rule string)) {
	t := c.PeerTLS
	if files := []string{t.CertFile, t.KeyFile, t.CAFile}; slices.Contains(files, "") && slices.ContainsFunc(files, func(f string) bool { return f != "" }) {
		for i, key := range []string{"peer-tls-cert", "peer-tls-key", "peer-tls-ca"} {
			if files[i] == "" {
				fail(key, "", "must be set: peer-tls-cert, peer-tls-key and peer-tls-ca go together")
			}
		}
	}
	host, port, _ := net.SplitHostPort(c.PeerListen) // form already checked
	if !isLoopback(host) && t.CertFile == "" && !c.Insecure {
		fail("peer-listen", c.PeerListen, "can be reached from other machines, which needs peer-tls-cert, peer-tls-key and peer-tls-ca, "+
			"or insecure = true if you accept that everybody who reaches it may become a member")
	}
	advertised := c.Advertise()
	if port == "0" && advertised == c.PeerListen {
		advertised = net.JoinHostPort(host, "1") // the port that is picked
	}
	if err := isDialable(advertised); err != nil {
		fail("peer-advertise", c.PeerAdvertise, "is needed, as peer-listen = "+c.PeerListen+" is no address that others can dial")
	}
	for _, m := range c.Members() {
		if m.ID == uint64(c.MemberID) && m.Address != advertised {
			fail("peer-advertise", c.PeerAdvertise, fmt.Sprintf("must be the address of member %d in initial-members, %s", m.ID, m.Address))
		}
	}
}
