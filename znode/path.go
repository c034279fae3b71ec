package znode

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// PathError says which rule a path breaks. It is BadArguments to errors.Is.
type PathError struct {
	Path string
	Rule string // what a path must be, such as "must start with /"
}

// Error names the path and the rule.
func (e *PathError) Error() string { return fmt.Sprintf("path %q %s", e.Path, e.Rule) }

// Is reports whether target is BadArguments, the code that a server would send.
func (e *PathError) Is(target error) bool { return target == BadArguments }

// ValidatePath returns nil or a *PathError. The rules are those of ZooKeeper's
// PathUtils: absolute, no trailing slash, no element that is empty, "." or "..", and
// no character among U+0000-U+001F, U+007F-U+009F, U+D800-U+F8FF, U+FFF0-U+FFFF or
// above U+FFFF. Bytes that are not UTF-8 count as U+FFFD. There is no limit of length.
// For a sequential create validate the path with any digit appended.
func ValidatePath(path string) error {
	if rule := brokenPathRule(path); rule != "" {
		return &PathError{Path: path, Rule: rule}
	}
	return nil
}

// brokenPathRule returns "" for a valid path. It allocates nothing.
func brokenPathRule(path string) string {
	switch {
	case path == "":
		return "must not be empty"
	case path[0] != '/':
		return "must start with /"
	case path == "/":
		return ""
	case path[len(path)-1] == '/':
		return "must not end with /"
	}
	element := 1 // where the current element starts
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		switch path[element:i] {
		case "":
			return "must not have an empty element"
		case ".", "..":
			return "must not have an element . or .."
		}
		element = i + 1
	}
	return brokenCharacterRule(path)
}

func brokenCharacterRule(path string) string {
	for i := 0; i < len(path); {
		if c := path[i]; c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f {
				return "must not have control characters (U+0000-U+001F, U+007F-U+009F)"
			}
			i++
			continue
		}
		// An invalid byte decodes as U+FFFD, which is refused.
		r, size := utf8.DecodeRuneInString(path[i:])
		switch {
		case r <= 0x9f:
			return "must not have control characters (U+0000-U+001F, U+007F-U+009F)"
		case r >= 0xd800 && r <= 0xf8ff:
			return "must not have characters of the private use area (U+E000-U+F8FF)"
		case r >= 0xfff0 && r <= 0xffff:
			return "must be UTF-8 without the characters U+FFF0-U+FFFF"
		case r > 0xffff:
			return "must not have characters above U+FFFF (such as emoji)"
		}
		i += size
	}
	return ""
}

// Split cuts a valid path into its parent's path and its own name. The root has
// neither: both are "".
func Split(path string) (parent, name string) {
	slash := strings.LastIndexByte(path, '/')
	switch {
	case slash < 0 || len(path) == 1:
		return "", ""
	case slash == 0:
		return "/", path[1:]
	}
	return path[:slash], path[slash+1:]
}

// Join is the path of the child of parent that is called name.
func Join(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}

// parentOf is what ZooKeeper takes as the parent of a path that may be malformed:
// the text before the last slash, the root if that is empty. ok is false where
// there is no slash or a NUL, which ZooKeeper refuses before it looks anything up.
func parentOf(path string) (parent string, ok bool) {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 || strings.IndexByte(path, 0) >= 0 {
		return "", false
	}
	if slash == 0 {
		return "/", true
	}
	return path[:slash], true
}

// under reports whether path is prefix or below it.
func under(path, prefix string) bool {
	if prefix == "/" {
		return true
	}
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '/')
}
