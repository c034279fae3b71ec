package wire

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// Goal: docs/protocol.md shows what the code does.
// Method: every JSON example is decoded; requests must be free of errors, and what is
// received must come out of the encoder to the byte. All operations must be shown.
func TestProtocolDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[Op]bool{}
	asked := map[int32]Op{29: OpRewatch} // the second answer to one question
	for _, line := range jsonExamples(string(text)) {
		msg := strings.ReplaceAll(line[2:], "{...}", jsonStat)
		switch {
		case strings.HasPrefix(line, ">"):
			exampleRequest(t, []byte(msg), shown, asked)
		case strings.HasPrefix(line, "<"):
			exampleReply(t, msg, asked)
		case line != jsonStat:
			t.Errorf("neither sent nor received nor a Stat: %s", line)
		}
	}
	rare := map[string]bool{"setWatches": true, "setWatches2": true, "checkWatches": true, "sasl": true, "reconfig": true, "check": true, "childNames": true}
	for name, spec := range jsonOps {
		if !shown[spec.op] && !rare[name] {
			t.Errorf("%s is not shown", name)
		}
		if !strings.Contains(string(text), name) {
			t.Errorf("%s is not mentioned", name)
		}
	}
}

// Goal: the table of errors in docs/protocol.md has the names that clients see.
// Method: every row of numbers below 0 against the code's names.
func TestProtocolDocumentErrors(t *testing.T) {
	text, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		code, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil || code >= 0 {
			continue
		}
		rows++
		if want := znode.Error(code).Name(); strings.TrimSpace(cells[2]) != want {
			t.Errorf("%d is %s, not%s", code, want, cells[2])
		}
	}
	if rows < 15 {
		t.Errorf("only %d errors in the table", rows)
	}
}

// jsonExamples returns the lines of all blocks of JSON.
func jsonExamples(text string) []string {
	var lines []string
	for i, block := range strings.Split(text, "```") {
		if body, ok := strings.CutPrefix(block, "json\n"); ok && i%2 == 1 {
			lines = append(lines, strings.Split(strings.TrimSpace(body), "\n")...)
		}
	}
	return lines
}

func exampleRequest(t *testing.T, msg []byte, shown map[Op]bool, asked map[int32]Op) {
	if _, err := (JSON{}).DecodeConnect(msg); err == nil {
		return
	}
	q, err := JSON{}.DecodeRequest(msg)
	if err != nil || q.Err != znode.OK {
		t.Errorf("%s: %+v, %v", msg, q, err)
		return
	}
	shown[q.Op], asked[q.Xid] = true, q.Op
	if _, ok := q.Body.(*znode.Create); ok {
		shown[OpCreate] = true
	}
}

func exampleReply(t *testing.T, msg string, asked map[int32]Op) {
	if c, err := (JSON{}).DecodeConnectReply([]byte(msg)); err == nil {
		if again := (JSON{}).AppendConnectReply(nil, &c); string(again) != msg {
			t.Errorf("%s is encoded as %s", msg, again)
		}
		return
	}
	p, e, err := JSON{}.DecodeMessage([]byte(msg), func(xid int32) (Op, bool) {
		op, ok := asked[xid]
		return op, ok
	})
	var again []byte
	switch {
	case err != nil:
		t.Errorf("%s: %v", msg, err)
		return
	case e != nil:
		again = JSON{}.AppendEvent(nil, e)
	default:
		again = JSON{}.AppendReply(nil, p)
	}
	if string(again) != msg {
		t.Errorf("%s is encoded as %s", msg, again)
	}
}
