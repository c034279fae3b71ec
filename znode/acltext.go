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
// last colon. Only the form is checked: what a server takes is its own judgement.
// Errors name the entry and are InvalidACL to errors.Is.
func ParseACL(s string) ([]ACL, error) {
	var list []ACL
	for text := range strings.SplitSeq(s, ",") {
		text = strings.TrimSpace(text)
		first, last := strings.IndexByte(text, ':'), strings.LastIndexByte(text, ':')
		if first <= 0 || first == last {
			return nil, fmt.Errorf("%w: entry %q is not scheme:id:perms", InvalidACL, text)
		}
		e := ACL{Scheme: text[:first], ID: text[first+1 : last]}
		for _, letter := range text[last+1:] {
			i := strings.IndexRune(permLetters, letter)
			if i < 0 {
				return nil, fmt.Errorf("%w: entry %q: permission %q is none of %s", InvalidACL, text, letter, permLetters)
			}
			e.Perms |= permBits[i]
		}
		list = append(list, e)
	}
	return list, nil
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
