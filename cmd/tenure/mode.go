package main

import (
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// modeFields is what ends a node's life, in JSON.
type modeFields struct {
	Mode string `json:"mode,omitempty"` // one of modeNames
	TTL  string `json:"ttl,omitempty"`  // for the mode ttl, as "5m0s"
}

// modeNames are the kinds of nodes as people write them.
var modeNames = [...]string{
	znode.Persistent: "persistent", znode.Ephemeral: "ephemeral", znode.Container: "container", znode.TTL: "ttl",
}

// modeFieldsOf is the inverse of parseKind.
func modeFieldsOf(l znode.Lifetime) modeFields {
	m := modeFields{Mode: modeNames[l.Kind]}
	if l.Kind == znode.TTL {
		m.TTL = (time.Duration(l.TTLMs) * time.Millisecond).String()
	}
	return m
}

// modeText is a lifetime in one or two words.
func modeText(l znode.Lifetime) string {
	m := modeFieldsOf(l)
	if m.TTL == "" {
		return m.Mode
	}
	return m.Mode + " " + m.TTL
}

// parseKind reads the name of a kind of node and, for "ttl", its lifetime.
func parseKind(mode, ttl string) (znode.Kind, int64, error) {
	if ttl != "" && mode != "ttl" {
		return 0, 0, fmt.Errorf(`"ttl" %q: is only for "mode":"ttl"`, ttl)
	}
	switch mode {
	case "", "persistent":
		return znode.Persistent, 0, nil
	case "ephemeral":
		return znode.Ephemeral, 0, nil
	case "container":
		return znode.Container, 0, nil
	case "ttl":
		d, err := time.ParseDuration(ttl)
		if err != nil || d < time.Millisecond {
			return 0, 0, fmt.Errorf(`"ttl" %q: want a duration of 1ms or more, as "5m"`, ttl)
		}
		return znode.TTL, d.Milliseconds(), nil
	}
	return 0, 0, fmt.Errorf(`"mode" %q: want persistent, ephemeral, container or ttl`, mode)
}
