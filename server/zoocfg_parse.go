package server

import (
	"fmt"
	"strconv"
	"strings"
)

// property is one entry of a file in the syntax of Java's properties.
type property struct {
	key, value string
	line       int // where it begins, from 1
}

// parseProperties reads what java.util.Properties reads: comments behind # or !, keys that
// end at =, : or a blank, escapes, and lines that go on behind a backslash. Bytes beyond
// ASCII stay as they are. Like ZooKeeper it drops blanks around keys and values, also
// those at the end, which Java keeps.
func parseProperties(text string) ([]property, error) {
	var all []property
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	for i := 0; i < len(lines); i++ {
		p := property{line: i + 1}
		logical := strings.TrimLeft(lines[i], propertyBlanks)
		if logical == "" || logical[0] == '#' || logical[0] == '!' {
			continue // also at a backslash a comment ends with its line
		}
		for continues(logical) {
			logical = logical[:len(logical)-1]
			if i++; i == len(lines) {
				break
			}
			logical += strings.TrimLeft(lines[i], propertyBlanks)
		}
		key, value := splitProperty(logical)
		var err error
		if p.key, err = unescape(key); err == nil {
			p.value, err = unescape(value)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
		p.key, p.value = strings.TrimSpace(p.key), strings.TrimSpace(p.value)
		all = append(all, p)
	}
	return all, nil
}

// propertyBlanks are the blanks of the syntax.
const propertyBlanks = " \t\f"

// continues reports whether a line ends in a backslash that no backslash escapes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// splitProperty cuts a logical line behind its key: at the first blank, = or : that is not
// escaped. One = or : may have blanks around it.
func splitProperty(line string) (key, value string) {
	at := 0
	for at < len(line) && !strings.ContainsRune("=:"+propertyBlanks, rune(line[at])) {
		if line[at] == '\\' {
			at++
		}
		at++
	}
	at = min(at, len(line))
	rest := strings.TrimLeft(line[at:], propertyBlanks)
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], propertyBlanks)
	}
	return line[:at], rest
}

// unescape resolves backslashes: \t, \n, \r, \f, \uXXXX, and before anything else
// nothing but that character.
func unescape(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 't', 'n', 'r', 'f':
			b.WriteByte(map[byte]byte{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f'}[c])
		case 'u':
			digits := text[i+1 : min(i+5, len(text))]
			n, err := strconv.ParseUint(digits, 16, 16)
			if err != nil || len(digits) < 4 {
				return "", rule(`\u%s must be \u and 4 hexadecimal digits`, digits)
			}
			b.WriteRune(rune(n))
			i += 4
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
