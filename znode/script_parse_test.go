package znode_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// splitWords cuts a line of a script at blanks; a quoted part, also behind "key=",
// is unquoted.
func splitWords(line string) ([]string, error) {
	var words []string
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " ") {
		word := ""
		for rest != "" && rest[0] != ' ' {
			if rest[0] != '"' {
				word, rest = word+rest[:1], rest[1:]
				continue
			}
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, err
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, err
			}
			word, rest = word+text, rest[len(quoted):]
		}
		words = append(words, word)
	}
	return words, nil
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("%q is not a number", s)
	}
	return n
}

// parseACL takes what ParseACL takes, permissions as numbers, and "none".
func parseACL(t *testing.T, s string) []znode.ACL {
	t.Helper()
	if s == "none" {
		return []znode.ACL{}
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if perms, err := strconv.Atoi(s[i+1:]); err == nil && s[i+1:] != "" {
			scheme, id, _ := strings.Cut(s[:i], ":")
			return []znode.ACL{{Perms: int32(perms), Scheme: scheme, ID: id}}
		}
	}
	acl, err := znode.ParseACL(s)
	if err != nil {
		t.Fatal(err)
	}
	return acl
}

// parseOp turns the words of one script line into an operation.
func parseOp(t *testing.T, words []string) znode.Op {
	t.Helper()
	var path string
	args := map[string]string{}
	for i, w := range words[1:] {
		key, value, hasValue := strings.Cut(w, "=")
		if i == 0 && !(hasValue && slices.Contains([]string{"data", "acl", "password", "seen"}, key)) {
			path = w
			continue
		}
		args[key] = value
	}
	version := int32(-1)
	if v, ok := args["v"]; ok {
		version = int32(number(t, v))
	}
	switch words[0] {
	case "create":
		return parseCreate(t, path, args)
	case "delete":
		return &znode.Delete{Path: path, Version: version}
	case "set":
		return &znode.SetData{Path: path, Data: parseData(args["data"]), Version: version}
	case "setacl":
		return &znode.SetACL{Path: path, ACL: parseACL(t, args["acl"]), Version: version}
	case "check":
		return &znode.Check{Path: path, Version: version}
	case "multi":
		return &znode.Multi{}
	case "open":
		op := &znode.OpenSession{TimeoutMs: 10000, Password: parsePassword(args), Seen: parseSeen(t, args)}
		if path != "" {
			op.TimeoutMs = int32(number(t, path))
		}
		return op
	case "resume":
		return &znode.ResumeSession{Session: session.ID(number(t, path)), Password: parsePassword(args), Seen: parseSeen(t, args)}
	case "close":
		return &znode.CloseSession{Session: session.ID(number(t, path))}
	case "expire":
		return &znode.CloseSession{Session: session.ID(number(t, path)), Expired: true, Owner: parseOwner(t, args["owner"])}
	case "reap":
		return &znode.Reap{Path: path}
	}
	t.Fatalf("unknown command %q", words[0])
	return nil
}

// parseOwner names a connection of process 1; "" and 0 are nobody.
func parseOwner(t *testing.T, s string) session.Owner {
	t.Helper()
	if s == "" || s == "0" {
		return session.Owner{}
	}
	return session.Owner{Origin: 1, Bind: uint64(number(t, s))}
}

func parsePassword(args map[string]string) (p [session.PasswordSize]byte) {
	copy(p[:], args["password"])
	return p
}

func parseSeen(t *testing.T, args map[string]string) int64 {
	t.Helper()
	if args["seen"] == "" {
		return 0
	}
	return number(t, args["seen"])
}

func parseCreate(t *testing.T, path string, args map[string]string) znode.Op {
	op := &znode.Create{Path: path, ACL: znode.OpenACL, Data: []byte{}}
	for key, value := range args {
		switch key {
		case "data":
			op.Data = parseData(value)
		case "acl":
			op.ACL = parseACL(t, value)
		case "seq":
			op.Mode.Sequential = true
		case "ephemeral":
			op.Mode.Kind = znode.Ephemeral
		case "container":
			op.Mode.Kind = znode.Container
		case "ttl":
			op.Mode.Kind, op.TTLMs = znode.TTL, number(t, value)
		case "lifetime":
			op.TTLMs = number(t, value) // without the kind that it belongs to
		case "kind":
			op.Mode.Kind = znode.Kind(number(t, value))
		case "stat":
			op.WantStat = true
		default:
			t.Fatalf("create: unknown argument %q", key)
		}
	}
	return op
}

func parseData(s string) []byte {
	if s == "null" {
		return nil
	}
	return []byte(s)
}
