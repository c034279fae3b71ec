package wire

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// jsonDepthMax bounds how deep a message may nest. The deepest that means something is
// an access list inside an operation of a multi: 5.
const jsonDepthMax = 8

// jsonReader reads one JSON text from front to back. It knows two kinds of error: text
// that is not JSON makes every further read fail (syntax), and a value that is not what
// its field takes is remembered (wrong) while reading goes on behind it, so that a
// request's number can still be found. It allocates no more than what it returns. One
// goroutine may use it at a time.
type jsonReader struct {
	buf   []byte
	off   int
	depth int
	field []byte // the field being read, for wrong; aliases buf
	// syntax and wrong say what was found, "" while nothing is.
	syntax, wrong string
}

// fail records that the text is not JSON.
func (r *jsonReader) fail(rule string) {
	if r.syntax == "" {
		r.syntax = fmt.Sprintf("offset %d: %s", r.off, rule)
	}
	r.off = len(r.buf)
}

// refuse records that the field's value breaks rule.
func (r *jsonReader) refuse(rule string) {
	if r.wrong == "" && r.syntax == "" {
		r.wrong = fmt.Sprintf("field %.40q %s", r.field, rule)
	}
}

// mistyped skips a value and records that the field wants another kind.
func (r *jsonReader) mistyped(want string) {
	if r.wrong == "" {
		r.refuse("must be " + want)
	}
	r.skip()
}

// peek returns the next byte that is not white space, 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.off < len(r.buf); r.off++ {
		switch c := r.buf[r.off]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// place is where a loop over an object or a list is: it is left when its end was seen,
// or at once if the value was something else.
type place uint8

const (
	outside place = iota
	atFirst
	behindOne
)

// object enters an object; anything else is skipped and refused.
func (r *jsonReader) object() place {
	if r.peek() != '{' {
		r.mistyped("an object")
		return outside
	}
	return r.enter()
}

// list enters a list; anything else is skipped and refused for not being what it names.
func (r *jsonReader) list(want string) place {
	if r.peek() != '[' {
		r.mistyped(want)
		return outside
	}
	return r.enter()
}

// enter passes the bracket that comes next.
func (r *jsonReader) enter() place {
	r.off++
	if r.depth++; r.depth > jsonDepthMax {
		r.fail("nested too deep")
	}
	return atFirst
}

// more reports whether another element follows, and leaves the list or object if not.
func (r *jsonReader) more(closing byte, at *place) bool {
	if *at == outside {
		return false
	}
	c := r.peek()
	switch {
	case c == closing:
		r.off++
		r.depth--
		return false
	case r.syntax != "" || c == 0:
		r.fail("the text ends early")
		return false
	case *at == atFirst:
		*at = behindOne
		return true
	case c != ',':
		r.fail("comma missing")
		return false
	}
	r.off++
	if r.peek() == closing {
		r.fail("comma in front of the end")
		return false
	}
	return true
}

// key reads a field's name and its colon. It aliases buf.
func (r *jsonReader) key() []byte {
	raw, _ := r.quoted()
	if r.peek() != ':' {
		r.fail("a name and a colon must come here")
		return nil
	}
	r.off++
	r.field = raw
	return raw
}

// quoted reads a string and returns what is between its quotes, aliasing buf, and
// whether it has escapes.
func (r *jsonReader) quoted() (raw []byte, escaped bool) {
	if r.peek() != '"' {
		r.fail("a string must come here")
		return nil, false
	}
	start := r.off + 1
	for i := start; i < len(r.buf); i++ {
		switch c := r.buf[i]; {
		case c == '"':
			if raw = r.buf[start:i]; !utf8.Valid(raw) {
				r.fail("string is not UTF-8")
				return nil, false
			}
			r.off = i + 1
			return raw, escaped
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			r.fail("control byte in a string")
			return nil, false
		}
	}
	r.fail("string does not end")
	return nil, false
}

// text reads a string; it copies only to undo escapes.
func (r *jsonReader) text() []byte {
	raw, escaped := r.quoted()
	if !escaped {
		return raw
	}
	s, rule := unescape(raw)
	if rule != "" {
		r.fail(rule)
	}
	return s
}

// str reads a string or refuses the value. Null is not a string.
func (r *jsonReader) str() string {
	if r.peek() != '"' {
		r.mistyped("a string")
		return ""
	}
	return string(r.text())
}

func (r *jsonReader) strs() []string {
	strs := []string{}
	for at := r.list("a list of strings"); r.more(']', &at); {
		if r.wrong != "" {
			r.skip()
			continue
		}
		strs = append(strs, r.str())
	}
	return strs
}

// literal consumes word if it comes next.
func (r *jsonReader) literal(word string) bool {
	r.peek()
	if !bytes.HasPrefix(r.buf[r.off:], []byte(word)) {
		return false
	}
	r.off += len(word)
	return true
}

func (r *jsonReader) bool() bool {
	switch {
	case r.literal("true"):
		return true
	case r.literal("false"):
	default:
		r.mistyped("true or false")
	}
	return false
}

// number returns the text of a number, aliasing buf.
func (r *jsonReader) number() []byte {
	r.peek()
	start := r.off
	for r.off < len(r.buf) && bytes.IndexByte([]byte("+-.0123456789eE"), r.buf[r.off]) >= 0 {
		r.off++
	}
	raw := r.buf[start:r.off]
	if !isNumber(raw) {
		r.off = start
		r.fail("a value must come here")
	}
	return raw
}

// long reads a 64-bit integer: a decimal string, or a number, which loses digits in
// some languages above 2^53.
func (r *jsonReader) long() int64 {
	switch c := r.peek(); {
	case c == '"':
		return r.integer(r.text(), math.MinInt64, math.MaxInt64)
	case c == '-' || c >= '0' && c <= '9':
		return r.integer(r.number(), math.MinInt64, math.MaxInt64)
	}
	r.mistyped("a decimal string")
	return 0
}

// int reads a 32-bit integer.
func (r *jsonReader) int() int32 {
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		r.mistyped("an integer")
		return 0
	}
	return int32(r.integer(r.number(), math.MinInt32, math.MaxInt32))
}

func (r *jsonReader) integer(text []byte, least, most int64) int64 {
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || v < least || v > most {
		r.refuse(fmt.Sprintf("must be an integer in [%d, %d], not %.30q", least, most, text))
		return 0
	}
	return v
}

// data reads base64, or null as nil.
func (r *jsonReader) data() []byte {
	if r.literal("null") {
		return nil
	}
	if r.peek() != '"' {
		r.mistyped("base64 or null")
		return nil
	}
	text := r.text()
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	if err != nil {
		r.refuse("must be base64 with padding")
		return nil
	}
	return data[:n]
}

// skip reads any value and drops it.
func (r *jsonReader) skip() {
	switch c := r.peek(); c {
	case '{':
		field := r.field
		for at := r.enter(); r.more('}', &at); {
			r.key()
			r.skip()
		}
		r.field = field
	case '[':
		for at := r.enter(); r.more(']', &at); {
			r.skip()
		}
	case '"':
		r.text()
	default:
		if !r.literal("true") && !r.literal("false") && !r.literal("null") {
			r.number()
		}
	}
}

// end checks that nothing follows.
func (r *jsonReader) end() {
	if r.peek(); r.off < len(r.buf) {
		r.fail("text behind the message")
	}
}
