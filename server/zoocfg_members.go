package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/replica"
)

// Members of an ensemble in a zoo.cfg: server.N=host:port:port, and dataDir/myid, which
// says which of them this one is. The first port, of ZooKeeper's followers, becomes the one
// of peer-listen; nothing needs the second.

// member notes a server.N line.
func (z *zooCfg) member(e *zooEntry) {
	z.ignore(e, "this member is alone")
	z.members = append(z.members, e)
}

// checkMembers judges the server.N lines together. A single one is this member, which then
// is alone as with ZooKeeper.
func (z *zooCfg) checkMembers() {
	if len(z.members) == 0 {
		return
	}
	self := z.members[0]
	if len(z.members) > 1 {
		if self = z.ensemble(); self == nil {
			return
		}
	} else if !z.isSole(self) {
		return
	}
	if _, client, found := strings.Cut(self.Value, ";"); found && z.entry("clientPort") == nil {
		host, port := "", client
		if at := strings.LastIndex(client, ":"); at >= 0 {
			host, port = client[:at], client[at+1:]
		}
		z.set(self, "zk-listen", joinHost(host, port))
	}
}

// isSole judges the only server.N line.
func (z *zooCfg) isSole(e *zooEntry) bool {
	if isZooObserver(e) {
		z.refuse(e, "the only member cannot be an observer: it has nobody to follow")
		return false
	}
	path, id, err := z.myID()
	if err == nil && id != memberNumber(e) {
		z.fail(e, "is not this member: "+path+" says "+id)
		return false
	}
	return true
}

// myID reads the file that says which member this one is.
func (z *zooCfg) myID() (path, id string, err error) {
	path = filepath.Join(z.value("dataDir"), "myid")
	text, err := os.ReadFile(path)
	return path, strings.TrimSpace(string(text)), err
}

func memberNumber(e *zooEntry) string { return strings.TrimPrefix(e.name, "server.") }

func isZooObserver(e *zooEntry) bool { return strings.Contains(e.Value, ":observer") }

// ensemble makes several server.N lines the settings of an ensemble, and returns this
// member's line; nil if they are refused.
func (z *zooCfg) ensemble() *zooEntry {
	path, id, err := z.myID()
	var self *zooEntry
	var list []string
	for _, e := range z.members {
		n, errN := strconv.ParseUint(memberNumber(e), 10, 64)
		host := zooMemberHost.FindStringSubmatch(e.Value)
		switch {
		case host == nil:
			return nil // its form was refused
		case errN != nil || n == 0 || n > replica.MaxMemberID:
			z.fail(e, fmt.Sprintf("must be server.N with N from 1 to %d", replica.MaxMemberID))
			return nil
		case isZooObserver(e):
			z.refuse(e, "is an observer, which does not found an ensemble: leave its line out here, and add it to the running ensemble "+
				"with `tenure member add`, which prints what it is started with", "initial-members")
			return nil
		}
		z.ignore(e, "goes with "+z.members[0].name)
		list = append(list, memberNumber(e)+"="+joinHost(host[1], host[2]))
		if memberNumber(e) == id {
			self = e
		}
	}
	first := z.members[0]
	switch {
	case err != nil:
		z.refuse(first, "is one of several members, and which of them this one is should be said by "+path+" ("+err.Error()+"), or by member-id", "member-id", "initial-members")
		return nil
	case self == nil:
		z.fail(first, "is one of several members, and none of them is this one: "+path+" says "+id)
		return nil
	}
	for _, e := range z.members {
		z.joined(e, "initial-members, with "+self.name)
	}
	z.set(self, "member-id", id)
	z.set(self, "initial-members", strings.Join(list, ","))
	host := zooMemberHost.FindStringSubmatch(self.Value)
	listen := joinHost(host[1], host[2])
	if all := z.entry("quorumListenOnAllIPs"); all != nil && strings.EqualFold(all.Value, "true") {
		listen = joinHost("", host[2])
		z.joined(all, "peer-listen, with "+self.name)
	}
	z.set(self, "peer-listen", listen)
	z.loaded.zooMember = z.origin(self)
	return self
}

// allPeerAddresses judges quorumListenOnAllIPs, which ensemble reads.
func (z *zooCfg) allPeerAddresses(e *zooEntry) {
	z.ignore(e, "only true says something, and only with several server.N")
}

// zooPeerAdvice is what to do about a server.N line, which other machines can reach.
const zooPeerAdvice = ". From a zoo.cfg: the keys of sslQuorum are not read, so give --peer-tls-cert, --peer-tls-key and --peer-tls-ca, or start with --insecure"

// zooMember is the rule of server.N.
func zooMember(text string) error {
	members, client, found := strings.Cut(text, ";")
	for m := range strings.SplitSeq(members, "|") {
		if !zooMemberForm.MatchString(strings.TrimSpace(m)) {
			return rule("must be host:port:port, perhaps with :participant or :observer and ;[address:]port behind, as in zoo1:2888:3888;2181")
		}
	}
	if found {
		return zooPort(client[strings.LastIndex(client, ":")+1:])
	}
	return nil
}

// zooMemberForm is one address of a member, zooMemberHost the first one's host and port.
var (
	zooMemberForm = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):\d+(:\d+)?(:(participant|observer))?$`)
	zooMemberHost = regexp.MustCompile(`^\s*(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):(\d+)`)
)
