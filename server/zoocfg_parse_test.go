package server

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Goal: the syntax is the one of Java's properties. Method: each line of the table is a
// file; what Java 17 makes of it, with blanks trimmed as ZooKeeper does, is beside it.
func TestZooCfgProperties(t *testing.T) {
	for text, want := range map[string]string{
		"a=1":                   "a|1",
		"  b : 2 ":              "b|2",
		"c 3":                   "c|3",
		"d\t=\t4":               "d|4",
		"e:=5":                  "e|=5",
		"f==6":                  "f|=6",
		`g\ h=7`:                "g h|7",
		`i\=j=8`:                "i=j|8",
		"k=a\\\n    b\\\n\tc":   "k|abc",
		`l=a\\` + "\nm=1":       `l|a\;m|1`,
		`m\:n:9`:                "m:n|9",
		`o=\u0041\t|`:           "o|A\t|",
		"p":                     "p|",
		"# x \\\nq=1":           "q|1",
		"! x\n\n \t# y\nr=1":    "r|1",
		"s=\\z\f ":              "s|z",
		"t\\\n  u=v":            "tu|v",
		`v=x\`:                  "v|x",
		"w=1\r\nx=2\ry=true ":   "w|1;x|2;y|true",
		"server.1 = h:1:2;2181": "server.1|h:1:2;2181",
		"":                      "",
	} {
		all, err := parseProperties(text)
		var got []string
		for _, p := range all {
			got = append(got, p.key+"|"+p.value)
		}
		if err != nil || strings.Join(got, ";") != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{`a=\u12`, `a=\u12g4`} {
		if _, err := parseProperties("x=1\n" + text); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	all, err := parseProperties("\n# x\na=\\\n\\\n1\n\nb=2")
	if err != nil || len(all) != 2 || all[0].line != 3 || all[1].line != 7 {
		t.Errorf("lines: %+v %v", all, err)
	}
}

// Goal: whatever the file, entries come in the order of their lines or there is an error.
// Method: random texts of what the syntax gives a meaning to.
func TestZooCfgPropertiesOfAnything(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const letters = "ab=: \t\f\\\\\\\n\r#!u0\u00e4"
	for range 50_000 {
		b := make([]byte, random.IntN(30))
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		text := string(b)
		all, err := parseProperties(text)
		last := 0
		for _, p := range all {
			if p.line <= last || p.line > len(text)+1 || err != nil {
				t.Fatalf("%q: line %d behind line %d, %v", text, p.line, last, err)
			}
			last = p.line
		}
	}
}
