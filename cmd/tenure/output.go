package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/tenure-dev/tenure/znode"
)

// The values of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputRaw   = "raw"
)

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printJSON writes v as one line.
func (a *app) printJSON(v any) error {
	line, err := jsonLine(v)
	if err != nil {
		return err
	}
	_, err = a.out.Write(append(line, '\n'))
	return err
}

// jsonLine encodes v so that it can be read and does nothing to a terminal: what
// safeText escapes is escaped here too, in JSON's way, which loses nothing.
func jsonLine(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // which would make text with < and & hard to read
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	line := bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
	if !bytes.ContainsFunc(line, isUnsafe) {
		return line, nil
	}
	var safe []byte
	for _, r := range string(line) {
		if isUnsafe(r) { // only inside strings, and never above U+FFFF
			safe = fmt.Appendf(safe, `\u%04x`, r)
		} else {
			safe = utf8.AppendRune(safe, r)
		}
	}
	return safe, nil
}

// text returns s as the chosen output shows it: raw as it is, else safe.
func (a *app) text(s string) string {
	if a.output == outputRaw {
		return s
	}
	return safeText(s)
}

// note writes a line for people to standard error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.stderr, oneLine(fmt.Sprintf(format, args...)))
}

// safeText returns s with everything escaped that could steer a terminal or hide
// text: control characters, bidirectional overrides, line separators and bytes that
// are not UTF-8. All else, letters of any script included, stays byte for byte.
func safeText(s string) string {
	if !strings.ContainsFunc(s, isUnsafe) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case isUnsafe(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// isUnsafe reports whether safeText escapes r.
func isUnsafe(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// writeData shows data to people: text with what is unsafe escaped, line breaks and
// tabs kept; anything else as a hex dump. It ends with a line break unless empty.
func writeData(w io.Writer, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if !utf8.Valid(data) || strings.IndexByte(string(data), 0) >= 0 {
		dumper := hex.Dumper(w)
		if _, err := dumper.Write(data); err != nil {
			return err
		}
		return dumper.Close()
	}
	for line := range strings.SplitAfterSeq(string(data), "\n") {
		body, hadBreak := strings.CutSuffix(line, "\n")
		if line == "" {
			break
		}
		cells := strings.Split(body, "\t")
		for i := range cells {
			cells[i] = safeText(cells[i])
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
		if !hadBreak {
			break
		}
	}
	return nil
}

// dataFields is a znode's data in JSON: "data" if it is text, "base64" if it is not,
// neither if it is null.
type dataFields struct {
	Data   *string `json:"data,omitempty"`
	Base64 *[]byte `json:"base64,omitempty"`
}

// dataFieldsOf returns data as dataFields, which keeps every byte and null.
func dataFieldsOf(data []byte) dataFields {
	if data == nil {
		return dataFields{}
	}
	if utf8.Valid(data) {
		s := string(data)
		return dataFields{Data: &s}
	}
	return dataFields{Base64: &data}
}

// bytes returns the data back; nil is null.
func (d dataFields) bytes() ([]byte, error) {
	switch {
	case d.Data != nil && d.Base64 != nil:
		return nil, fmt.Errorf(`"data" and "base64": only one may be given`)
	case d.Data != nil:
		return append([]byte{}, *d.Data...), nil
	case d.Base64 != nil:
		return append([]byte{}, *d.Base64...), nil
	}
	return nil, nil
}

// statFields is a Stat in JSON. Numbers of 64 bits are strings, which no reader rounds.
type statFields struct {
	Czxid          string `json:"czxid"`
	Mzxid          string `json:"mzxid"`
	Pzxid          string `json:"pzxid"`
	Ctime          string `json:"ctime"`
	Mtime          string `json:"mtime"`
	Version        int32  `json:"version"`
	Cversion       int32  `json:"cversion"`
	Aversion       int32  `json:"aversion"`
	EphemeralOwner string `json:"ephemeralOwner"`
	DataLength     int32  `json:"dataLength"`
	NumChildren    int32  `json:"numChildren"`
}

// statFieldsOf converts s.
func statFieldsOf(s znode.Stat) statFields {
	return statFields{
		Czxid: formatZxid(s.Czxid), Mzxid: formatZxid(s.Mzxid), Pzxid: formatZxid(s.Pzxid),
		Ctime: formatTime(s.Ctime), Mtime: formatTime(s.Mtime),
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		EphemeralOwner: s.EphemeralOwner.String(), DataLength: s.DataLength, NumChildren: s.NumChildren,
	}
}

// writeStat shows s to people, one field per line.
func writeStat(w io.Writer, s znode.Stat) error {
	f := statFieldsOf(s)
	_, err := fmt.Fprintf(w, "czxid           %s\nmzxid           %s\npzxid           %s\n"+
		"ctime           %s\nmtime           %s\nversion         %d\ncversion        %d\naversion        %d\n"+
		"ephemeralOwner  %s\ndataLength      %d\nnumChildren     %d\n",
		f.Czxid, f.Mzxid, f.Pzxid, f.Ctime, f.Mtime, f.Version, f.Cversion, f.Aversion,
		f.EphemeralOwner, f.DataLength, f.NumChildren)
	return err
}

// formatZxid writes a zxid the way ZooKeeper's tools do: 0x and hexadecimal digits.
func formatZxid(zxid int64) string { return "0x" + strconv.FormatUint(uint64(zxid), 16) }

// parseZxid reads what formatZxid writes, and decimal numbers.
func parseZxid(s string) (int64, error) {
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		n, err := strconv.ParseUint(digits, 16, 64)
		return int64(n), err
	}
	return strconv.ParseInt(s, 10, 64)
}

// formatTime writes milliseconds since 1970 as RFC 3339 in UTC.
func formatTime(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
