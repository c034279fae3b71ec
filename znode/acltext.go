package znode

import (
	"fmt"
	"strings"
)

// permLetters are ZooKeeper's letters for the permissions, in the order in which
// its tools print them.
const permLetters = "cdrwa"

var permBits = [len(permLetters)]int32{PermCreate, PermDelete, PermRead, PermWrite, PermAdmin}

// ParseACL reads a list in the form of ZooKeeper's tools: scheme:id:perms, separated
// by commas, perms being letters of cdrwa. The id is all between the first and the
// last colon; it may have commas (as x509's have), since an entry without its
// second colon goes on behind the comma. Only the form is checked: what a server
// takes is its own judgement. Errors name the entry and are InvalidACL to errors.Is.
func ParseACL(s string) ([]ACL, error) {
	var list []ACL
	entry := ""
	for piece := range strings.SplitSeq(s, ",") {
		entry += piece
		first, last := strings.IndexByte(entry, ':'), strings.LastIndexByte(entry, ':')
		if first >= 0 && first == last {
			entry += ","
			continue
		}
		if first < 0 || strings.TrimSpace(entry[:first]) == "" {
			return nil, malformedEntry(entry)
		}
		perms, err := parsePerms(entry[last+1:])
		if err != nil {
			return nil, fmt.Errorf("%w: entry %q: %w", InvalidACL, entry, err)
		}
		list = append(list, ACL{Perms: perms, Scheme: strings.TrimSpace(entry[:first]), ID: entry[first+1 : last]})
		entry = ""
	}
	if entry != "" {
		return nil, malformedEntry(strings.TrimSuffix(entry, ","))
	}
	return list, nil
}

func malformedEntry(entry string) error {
	return fmt.Errorf("%w: entry %q is not scheme:id:perms", InvalidACL, entry)
}

func parsePerms(letters string) (perms int32, err error) {
	for _, letter := range letters {
		i := strings.IndexRune(permLetters, letter)
		if i < 0 {
			return 0, fmt.Errorf("permission %q is none of %s", letter, permLetters)
		}
		perms |= permBits[i]
	}
	return perms, nil
}

// String is the entry in the form that ParseACL reads. Unknown permission bits are
// not shown.
func (e ACL) String() string {
	letters := make([]byte, 0, len(permLetters))
	for i, bit := range permBits {
		if e.Perms&bit != 0 {
			letters = append(letters, permLetters[i])
		}
	}
	return e.Scheme + ":" + e.ID + ":" + string(letters)
}

// FormatACL is the list in the form that ParseACL reads.
func FormatACL(list []ACL) string {
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = e.String()
	}
	return strings.Join(texts, ",")
}
