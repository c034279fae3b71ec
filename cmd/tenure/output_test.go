package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tenure-dev/tenure/wire"
)

// Goal: nothing that a znode or a name holds can steer a terminal, and text of any
// script is left alone. Method: a table of data and how people see it.
func TestDataIsShownSafely(t *testing.T) {
	for data, want := range map[string]string{
		"":                        "",
		"text":                    "text\n",
		"two\nlines\n":            "two\nlines\n",
		"tab\there":               "tab\there\n",
		"\n":                      "\n",
		"中文 é e\u0301 🐂 x\u00a0y": "中文 é e\u0301 🐂 x\u00a0y\n",
		"\x1b[31mred":             `\x1b[31mred` + "\n",
		"crlf\r\n":                `crlf\r` + "\n",
		"c1 \u009b31m":            `c1 \u009b31m` + "\n",
		"bidi \u202e!":            `bidi \u202e!` + "\n",
		"line\u2028separator":     `line\u2028separator` + "\n",
		"nul\x00":                 "00000000  6e 75 6c 00                                       |nul.|\n",
		"\xff\xfe\x1b":            "00000000  ff fe 1b                                          |...|\n",
	} {
		var b bytes.Buffer
		if err := writeData(&b, []byte(data)); err != nil || b.String() != want {
			t.Errorf("%q: %q, %v; want %q", data, b.String(), err, want)
		}
	}
	if got, want := safeText("bad \xff\n"), `bad \xff\n`; got != want {
		t.Errorf("safeText: %q, want %q", got, want)
	}
}

// FuzzSafeText: whatever the bytes, the result is UTF-8 without anything that is unsafe
// on a terminal, and safe text comes back as it was.
func FuzzSafeText(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b]0;title\x07\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		safe := safeText(s)
		if !utf8.ValidString(safe) || strings.ContainsFunc(safe, isUnsafe) {
			t.Errorf("%q became %q", s, safe)
		}
		if again := safeText(safe); again != safe {
			t.Errorf("%q became %q", safe, again)
		}
	})
}

// Goal: null, empty, text and binary data survive JSON and are told apart. Method: there
// and back again.
func TestC005DataFieldsKeepNullEmptyAndBinary(t *testing.T) {
	for _, test := range []struct {
		data []byte
		want string
	}{
		{nil, `{}`},
		{[]byte{}, `{"data":""}`},
		{[]byte("é\x00<"), `{"data":"é\u0000\u003c"}`},
		{[]byte{0, 0xff}, `{"base64":"AP8="}`},
	} {
		line, err := json.Marshal(dataFieldsOf(test.data))
		if err != nil || string(line) != test.want {
			t.Errorf("%q: %s, %v; want %s", test.data, line, err, test.want)
		}
		var fields dataFields
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		back, err := fields.bytes()
		if err != nil || !bytes.Equal(back, test.data) || (back == nil) != (test.data == nil) {
			t.Errorf("%q came back as %q (null: %v), %v", test.data, back, back == nil, err)
		}
	}
}

// Goal: JSON steers no terminal either, and loses nothing by it. Method: a string with
// everything that is unsafe, there and back.
func TestJSONIsSafe(t *testing.T) {
	const text = "a\x1b[31m\u009b\x7f\u202e\u2028<&>é"
	line, err := jsonLine(text)
	if err != nil || strings.ContainsFunc(string(line), isUnsafe) || !strings.Contains(string(line), "<&>é") {
		t.Errorf("%q, %v", line, err)
	}
	var back string
	if err := json.Unmarshal(line, &back); err != nil || back != text {
		t.Errorf("came back as %q, %v", back, err)
	}
}

// Goal: ids, times and types have one shape in every output. Method: a value of each.
func TestFormats(t *testing.T) {
	if got := formatZxid(0x100000007); got != "0x100000007" {
		t.Errorf("zxid %s", got)
	}
	for text, want := range map[string]int64{"0x100000007": 0x100000007, "17": 17, "0xffffffffffffffff": -1} {
		if got, err := parseZxid(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	if got, want := formatTime(1_700_000_000_123), "2023-11-14T22:13:20.123Z"; got != want {
		t.Errorf("time %s, want %s", got, want)
	}
	if got := eventName(wire.EventGap); got != "gap" {
		t.Errorf("the event of a gap is called %q", got)
	}
}

// Goal: figures of several servers stand side by side, an unreachable one by name.
// Method: two servers with different figures and one without any.
func TestStatusTable(t *testing.T) {
	a, stdout, stderr := testApp(outputTable)
	members := []memberStatus{
		{server: endpoint{host: "a:1"}, figures: []wire.Figure{{Name: "role", Value: "leader"}, {Name: "term", Value: "7"}}},
		{server: endpoint{host: "b:1"}, err: &codeError{exitUnreachable, usagef("connect to b:1: refused")}},
		{server: endpoint{host: "c:1"}, figures: []wire.Figure{{Name: "role", Value: "follower"}, {Name: "lag", Value: "\x1b[0m"}}},
	}
	if err := a.printStatus(members); err != nil {
		t.Fatal(err)
	}
	a.out.Flush()
	want := "FIGURE  a:1     b:1          c:1\n" +
		"role    leader  unreachable  follower\n" +
		"term    7       unreachable  -\n" +
		"lag     -       unreachable  \\x1b[0m\n"
	if stdout.String() != want {
		t.Errorf("printed\n%swant\n%s", stdout, want)
	}
	err := a.statusFailure(t.Context(), members)
	if err == nil || !strings.Contains(err.Error(), "b:1") || !strings.Contains(stderr.String(), "refused") {
		t.Errorf("error %v, standard error %q; want both to name b:1", err, stderr)
	}
}
