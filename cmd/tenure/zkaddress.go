package main

import (
	"net"
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

const (
	// zkScheme begins the address of a ZooKeeper.
	zkScheme      = "zk://"
	defaultZKPort = "2181"
)

// parseZKAddress reads zk://HOST:PORT,HOST:PORT/CHROOT. Every server may have the scheme
// and a path of its own, as lists of endpoints do; the paths must not differ.
func parseZKAddress(s string, secure bool) ([]endpoint, error) {
	var all []endpoint
	chroot, named := "", false
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.TrimPrefix(strings.TrimSpace(entry), zkScheme)
		if entry == "" {
			continue
		}
		host, path, hasPath := strings.Cut(entry, "/")
		e, err := parseEndpoint(host, secure)
		if err != nil || strings.Contains(entry, "://") {
			return nil, usagef("endpoint %q: want %sHOST:PORT,HOST:PORT/PATH", s, zkScheme)
		}
		if !strings.HasSuffix(host, ":"+portOf(e.host)) { // it has none
			name, _, _ := net.SplitHostPort(e.host)
			e.host = net.JoinHostPort(name, defaultZKPort)
		}
		e.zk = true
		all = append(all, e)
		if path = strings.TrimSuffix(path, "/"); !hasPath || path == "" {
			continue
		}
		if path = "/" + path; named && path != chroot {
			return nil, usagef("endpoint %q: the root %s differs from %s", s, path, chroot)
		}
		chroot, named = path, true
	}
	if len(all) == 0 {
		return nil, usagef("endpoint %q: want %sHOST:PORT,HOST:PORT/PATH", s, zkScheme)
	}
	if named {
		if err := znode.ValidatePath(chroot); err != nil {
			return nil, usagef("endpoint %q: %v", s, err)
		}
	}
	for i := range all {
		all[i].chroot = chroot
	}
	return all, nil
}

// portOf is the port of a HOST:PORT.
func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
