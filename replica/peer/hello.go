package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/tenure-dev/tenure/replica"
)

// The greetings with which a connection begins: the dialing member's hello, the other's
// answer, and the dialing member's answer to that; then whatever the connection is for.
// A greeting is 8 bytes of magic, the length of the rest in 2 bytes, and fields: a tag
// (1 byte), a length (2 bytes), and that many bytes. Numbers are big endian. Fields with
// an unknown tag are skipped, so that later versions may add some.
const (
	protocolVersion = 1

	magicLen   = 8
	helloMagic = "tnrhello"
	replyMagic = "tnrreply"

	greetingMax = 2048 // bytes of fields
	textMax     = 255  // bytes of a version or an address
	refusalMax  = 1024 // bytes of a refusal
)

// Tags of fields. They are never used for anything else again.
const (
	tagProtocol = 1 + iota
	tagCluster
	tagFrom
	tagTo
	tagInstance
	tagLink
	tagFeatures
	tagClass
	tagVersion
	tagAddress
	tagRefusal
)

// classStream is the class of a stream's connection, next to those of frames.
const classStream = replica.Classes

// hello is how a dialing member introduces itself.
type hello struct {
	protocol, cluster  uint64
	from, to, instance uint64
	link               uint64 // the same on the control and bulk connection of one link
	features           uint64
	class              replica.Class
	version, address   string
}

// reply says whether the other end is accepted, and who says so.
type reply struct {
	instance, features uint64
	version            string
	refusal            string // "" if accepted
}

func appendNumber(b []byte, tag byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, tag, 0, 8), v)
}

func appendText(b []byte, tag byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(append(b, tag), uint16(len(text))), text...)
}

// seal puts the length of the fields where room was left for it.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint16(b[magicLen:], uint16(len(b)-magicLen-2))
	return b
}

func (h hello) encode() []byte {
	b := append([]byte(helloMagic), 0, 0)
	b = appendNumber(b, tagProtocol, h.protocol)
	b = appendNumber(b, tagCluster, h.cluster)
	b = appendNumber(b, tagFrom, h.from)
	b = appendNumber(b, tagTo, h.to)
	b = appendNumber(b, tagInstance, h.instance)
	b = appendNumber(b, tagLink, h.link)
	b = appendNumber(b, tagFeatures, h.features)
	b = appendNumber(b, tagClass, uint64(h.class)+1)
	b = appendText(b, tagVersion, h.version)
	b = appendText(b, tagAddress, h.address)
	return seal(b)
}

func (r reply) encode() []byte {
	b := append([]byte(replyMagic), 0, 0)
	if r.refusal != "" {
		return seal(appendText(b, tagRefusal, r.refusal[:min(len(r.refusal), refusalMax)]))
	}
	b = appendNumber(b, tagInstance, r.instance)
	b = appendNumber(b, tagFeatures, r.features)
	return seal(appendText(b, tagVersion, r.version))
}

// readGreeting returns the fields of a greeting that begins with magic, and reads nothing
// behind it.
func readGreeting(r io.Reader, magic string) ([]byte, error) {
	var head [magicLen + 2]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		if foreign := notGreeting(head[:n], magic); foreign != nil {
			return nil, foreign
		}
		return nil, fmt.Errorf("after %d bytes of a greeting: %w", n, err)
	}
	if err := notGreeting(head[:], magic); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint16(head[magicLen:])
	if size > greetingMax {
		return nil, fmt.Errorf("a greeting of %d bytes, at most %d", size, greetingMax)
	}
	body := make([]byte, size)
	if n, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("after %d of %d bytes of a greeting's fields: %w", n, size, err)
	}
	return body, nil
}

// errTLSRecord: the other end speaks TLS, and this one does not.
var errTLSRecord = errors.New("the other end speaks TLS, for which this member is not configured")

// notGreeting returns what b, the first bytes received, is instead of magic, if that can
// be told already.
func notGreeting(b []byte, magic string) error {
	b = b[:min(len(b), magicLen)]
	switch {
	case strings.HasPrefix(magic, string(b)):
		return nil
	case len(b) >= 2 && (b[0] == 0x15 || b[0] == 0x16) && b[1] == 3: // an alert or a handshake
		return errTLSRecord
	}
	return fmt.Errorf("the other end does not speak the protocol of members: it begins with %q, not with %q", b, magic)
}

// fieldReader takes fields out of a greeting; the first error stays.
type fieldReader struct {
	values map[byte][]byte
	err    error
}

func parseFields(body []byte) fieldReader {
	f := fieldReader{values: map[byte][]byte{}}
	for len(body) > 0 {
		if len(body) < 3 {
			f.err = fmt.Errorf("%d bytes behind the last field of a greeting", len(body))
			return f
		}
		tag, size := body[0], int(binary.BigEndian.Uint16(body[1:]))
		if body = body[3:]; size > len(body) {
			f.err = fmt.Errorf("field %d of a greeting has %d bytes, of which %d are there", tag, size, len(body))
			return f
		}
		if _, twice := f.values[tag]; twice {
			f.err = fmt.Errorf("field %d of a greeting is there twice", tag)
			return f
		}
		f.values[tag], body = body[:size], body[size:]
	}
	return f
}

// number takes the field that must be there.
func (f *fieldReader) number(tag byte, name string) uint64 {
	value, ok := f.values[tag]
	switch {
	case f.err != nil:
	case !ok:
		f.err = fmt.Errorf("the greeting lacks its field %q", name)
	case len(value) != 8:
		f.err = fmt.Errorf("the greeting's field %q has %d bytes, not 8", name, len(value))
	default:
		return binary.BigEndian.Uint64(value)
	}
	return 0
}

// id takes a number that is not 0.
func (f *fieldReader) id(tag byte, name string) uint64 {
	v := f.number(tag, name)
	if f.err == nil && v == 0 {
		f.err = fmt.Errorf("the greeting's field %q is 0", name)
	}
	return v
}

// text takes a text that must be there; what could not be printed on one line is
// replaced, since it ends up in logs and on terminals.
func (f *fieldReader) text(tag byte, name string, limit int) string {
	value, ok := f.values[tag]
	switch {
	case f.err != nil:
	case !ok:
		f.err = fmt.Errorf("the greeting lacks its field %q", name)
	case len(value) > limit:
		f.err = fmt.Errorf("the greeting's field %q has %d bytes, at most %d", name, len(value), limit)
	default:
		return strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
				return '?'
			}
			return r
		}, string(value))
	}
	return ""
}

// readHello reads and decodes a hello. One of another protocol is not decoded further.
func readHello(r io.Reader) (h hello, err error) {
	body, err := readGreeting(r, helloMagic)
	if err != nil {
		return h, err
	}
	f := parseFields(body)
	if h.protocol = f.number(tagProtocol, "protocol"); f.err == nil && h.protocol != protocolVersion {
		return h, fmt.Errorf("protocol %d: this member speaks %d", h.protocol, protocolVersion)
	}
	h.cluster = f.id(tagCluster, "cluster")
	h.from = f.id(tagFrom, "from")
	h.to = f.id(tagTo, "to")
	h.instance = f.id(tagInstance, "instance")
	h.link = f.id(tagLink, "link")
	h.features = f.number(tagFeatures, "features")
	class := f.id(tagClass, "class") - 1
	h.version = f.text(tagVersion, "version", textMax)
	h.address = f.text(tagAddress, "address", textMax)
	if f.err == nil && class > uint64(classStream) {
		f.err = fmt.Errorf("class %d is not one of 1 (control), 2 (bulk), 3 (stream)", class+1)
	}
	if f.err == nil {
		f.err = checkAddress(h.address)
	}
	h.class = replica.Class(class)
	return h, f.err
}

// refusedError is what the other end gave as its reason to refuse this member.
type refusedError string

func (e refusedError) Error() string { return "it refuses this member: " + string(e) }

// readReply reads and decodes a reply; a refusal is an error.
func readReply(r io.Reader) (a reply, err error) {
	body, err := readGreeting(r, replyMagic)
	if err != nil {
		return a, err
	}
	f := parseFields(body)
	if _, refused := f.values[tagRefusal]; refused {
		a.refusal = f.text(tagRefusal, "refusal", refusalMax)
		if f.err != nil {
			return a, f.err
		}
		return a, refusedError(a.refusal)
	}
	a.instance = f.id(tagInstance, "instance")
	a.features = f.number(tagFeatures, "features")
	a.version = f.text(tagVersion, "version", textMax)
	return a, f.err
}
