package main

import (
	"strings"

	zkrecipes "github.com/tenure-dev/tenure/recipes/zk"
)

// zkScheme begins the address of a ZooKeeper.
const zkScheme = "zk://"

// parseZKAddress reads zk://HOST:PORT,HOST:PORT/CHROOT, which lists of endpoints have cut
// at the commas: every server may have the scheme, the last one the chroot.
func parseZKAddress(s string, secure bool) ([]endpoint, error) {
	servers, chroot, err := zkrecipes.ParseAddress(strings.ReplaceAll(s, ","+zkScheme, ","))
	switch {
	case err != nil:
		return nil, usagef("endpoint %q: %v", s, err)
	case strings.Contains(chroot, ","): // which may be another server
		return nil, usagef("endpoint %q: the root %s stands behind the last server, and has no comma", s, chroot)
	}
	all := make([]endpoint, len(servers))
	for i, host := range servers {
		all[i] = endpoint{zk: true, secure: secure, host: host, chroot: chroot}
	}
	return all, nil
}
