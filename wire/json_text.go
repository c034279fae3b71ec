package wire

import (
	"encoding/base64"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tenure-dev/tenure/znode"
)

// unescape undoes the escapes between the quotes of a JSON string. A rule that is
// broken comes back as text. Half a surrogate pair is one: it is no character.
func unescape(raw []byte) (s []byte, rule string) {
	s = make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			s = append(s, raw[i])
			continue
		}
		i++ // the reader saw to it that a byte follows
		switch c := raw[i]; c {
		case '"', '\\', '/':
			s = append(s, c)
		case 'b':
			s = append(s, '\b')
		case 'f':
			s = append(s, '\f')
		case 'n':
			s = append(s, '\n')
		case 'r':
			s = append(s, '\r')
		case 't':
			s = append(s, '\t')
		case 'u':
			c, n := unescapeRune(raw[i-1:])
			if n == 0 {
				return nil, "not a character behind \\u"
			}
			s = utf8.AppendRune(s, c)
			i += n - 2
		default:
			return nil, "unknown escape in a string"
		}
	}
	return s, ""
}

// unescapeRune reads \uXXXX, or two of them that are a pair, and returns how many bytes
// that was; 0 if it is not a character.
func unescapeRune(raw []byte) (rune, int) {
	c := hex4(raw)
	if !utf16.IsSurrogate(c) {
		if c < 0 {
			return 0, 0
		}
		return c, 6
	}
	if c = utf16.DecodeRune(c, hex4(raw[6:])); c == utf8.RuneError {
		return 0, 0
	}
	return c, 12
}

// hex4 reads \uXXXX, -1 if raw does not start with that.
func hex4(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return -1
	}
	v, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil || raw[2] == '+' || raw[2] == '_' {
		return -1
	}
	return rune(v)
}

// isNumber reports whether raw is a number by JSON's grammar.
func isNumber(raw []byte) bool {
	raw = trimSign(raw, "-")
	whole := digits(raw)
	if whole == 0 || raw[0] == '0' && whole > 1 {
		return false
	}
	raw = raw[whole:]
	if len(raw) > 0 && raw[0] == '.' {
		n := digits(raw[1:])
		if n == 0 {
			return false
		}
		raw = raw[1+n:]
	}
	if len(raw) > 0 && (raw[0] == 'e' || raw[0] == 'E') {
		raw = trimSign(raw[1:], "+-")
		n := digits(raw)
		return n > 0 && n == len(raw)
	}
	return len(raw) == 0
}

func trimSign(raw []byte, signs string) []byte {
	for i := range signs {
		if len(raw) > 0 && raw[0] == signs[i] {
			return raw[1:]
		}
	}
	return raw
}

// digits counts the digits that raw starts with.
func digits(raw []byte) int {
	n := 0
	for n < len(raw) && raw[n] >= '0' && raw[n] <= '9' {
		n++
	}
	return n
}

// The functions below append one field with a comma in front, or a value.

func addKey(dst []byte, key string) []byte {
	return append(append(append(dst, ',', '"'), key...), '"', ':')
}

func addStr(dst []byte, key, s string) []byte { return addText(addKey(dst, key), s) }

// addLong writes a decimal string: JavaScript's numbers hold 53 bits.
func addLong(dst []byte, key string, v int64) []byte {
	return append(strconv.AppendInt(append(addKey(dst, key), '"'), v, 10), '"')
}

func addInt(dst []byte, key string, v int32) []byte {
	return strconv.AppendInt(addKey(dst, key), int64(v), 10)
}

func addBool(dst []byte, key string, v bool) []byte {
	return strconv.AppendBool(addKey(dst, key), v)
}

// addTrue writes the field only if it is true, which no field is by default.
func addTrue(dst []byte, key string, v bool) []byte {
	if !v {
		return dst
	}
	return addBool(dst, key, true)
}

func addData(dst []byte, key string, b []byte) []byte {
	dst = addKey(dst, key)
	if b == nil {
		return append(dst, "null"...)
	}
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

// addList writes a list; elem appends one element with a comma in front.
func addList(dst []byte, key string, n int, elem func(dst []byte, i int) []byte) []byte {
	dst = append(addKey(dst, key), '[')
	start := len(dst)
	for i := range n {
		dst = elem(dst, i)
	}
	return append(dropComma(dst, start), ']')
}

// dropComma removes the comma at start, which stands in front of the first element.
func dropComma(dst []byte, start int) []byte {
	if len(dst) == start {
		return dst
	}
	return append(dst[:start], dst[start+1:]...)
}

func addStrs(dst []byte, key string, strs []string) []byte {
	return addList(dst, key, len(strs), func(dst []byte, i int) []byte {
		return addText(append(dst, ','), strs[i])
	})
}

func addACL(dst []byte, acl []znode.ACL) []byte {
	if acl == nil {
		return append(addKey(dst, "acl"), "null"...)
	}
	return addList(dst, "acl", len(acl), func(dst []byte, i int) []byte {
		dst = strconv.AppendInt(append(dst, `,{"perms":`...), int64(acl[i].Perms), 10)
		return append(addStr(addStr(dst, "scheme", acl[i].Scheme), "id", acl[i].ID), '}')
	})
}

func addStat(dst []byte, s *znode.Stat) []byte {
	return putJSONStat(addKey(dst, "stat"), s)
}

func putJSONStat(dst []byte, s *znode.Stat) []byte {
	dst = append(dst, '{')
	start := len(dst)
	dst = addLong(addLong(dst, "czxid", s.Czxid), "mzxid", s.Mzxid)
	dst = addLong(addLong(dst, "ctime", s.Ctime), "mtime", s.Mtime)
	dst = addInt(addInt(dst, "version", s.Version), "cversion", s.Cversion)
	dst = addLong(addInt(dst, "aversion", s.Aversion), "ephemeralOwner", int64(s.EphemeralOwner))
	dst = addInt(addInt(dst, "dataLength", s.DataLength), "numChildren", s.NumChildren)
	return append(dropComma(addLong(dst, "pzxid", s.Pzxid), start), '}')
}

// putJSONLifetime writes the fields that a create would have.
func putJSONLifetime(dst []byte, l znode.Lifetime) []byte {
	dst = addText(append(dst, `{"mode":`...), modeNames[znode.Mode{Kind: l.Kind}])
	if l.TTLMs != 0 {
		dst = addLong(dst, "ttlMs", l.TTLMs)
	}
	return append(dst, '}')
}

// addText writes s in quotes. What is not UTF-8 becomes U+FFFD.
func addText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0 // s[plain:i] needs no escape
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, n := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[plain:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, "\uFFFD"...)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, '\\', c)
		}
		i++
		plain = i
	}
	return append(append(dst, s[plain:]...), '"')
}
