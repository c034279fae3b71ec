package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

const jsonStat = `{"czxid":"1","mzxid":"2","ctime":"3","mtime":"4","version":5,"cversion":6,` +
	`"aversion":7,"ephemeralOwner":"8","dataLength":9,"numChildren":10,"pzxid":"11"}`

// Goal: requests in JSON are what docs/protocol.md says, with its defaults.
// Method: texts written by hand, decoded.
func TestJSONRequestTexts(t *testing.T) {
	tests := []struct {
		text string
		want Request
	}{
		{`{"xid":7,"op":"create","path":"/a"}`, Request{Op: OpCreate, Body: &znode.Create{Path: "/a", ACL: znode.OpenACL}}},
		{` { "op" : "create" , "path" : "\/\u0061" , "data":"AQID", "mode":"ephemeral-sequential", "stat":true, "xid":7 } `,
			Request{Op: OpCreate2, Body: &znode.Create{Path: "/a", Data: goldenData, ACL: znode.OpenACL, WantStat: true,
				Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}}}},
		{`{"xid":7,"op":"create","path":"/a","data":"","mode":"container","acl":[{"perms":1,"scheme":"ip","id":"::1"}]}`,
			Request{Op: OpCreateContainer, Body: &znode.Create{Path: "/a", Data: []byte{}, WantStat: true,
				ACL: []znode.ACL{{Perms: 1, Scheme: "ip", ID: "::1"}}, Mode: znode.Mode{Kind: znode.Container}}}},
		{`{"xid":7,"op":"create","path":"/a","mode":"ttl","ttlMs":"1000"}`,
			Request{Op: OpCreateTTL, Body: &znode.Create{Path: "/a", ACL: znode.OpenACL, WantStat: true,
				Mode: znode.Mode{Kind: znode.TTL}, TTLMs: 1000}}},
		{`{"xid":7,"op":"set","path":"/a","data":null,"seq":"3","acked":2}`,
			Request{Op: OpSetData, Seq: 3, Acked: 2, Body: &znode.SetData{Path: "/a", Version: -1}}},
		{`{"xid":7,"op":"delete","path":"/a","version":4}`, Request{Op: OpDelete, Body: &znode.Delete{Path: "/a", Version: 4}}},
		{`{"xid":7,"op":"get","path":"/a","watch":true,"stale":true}`, Request{Op: OpGetData, Stale: true, Body: &PathWatch{"/a", true}}},
		{`{"xid":7,"op":"children","path":"/a"}`, Request{Op: OpGetChildren2, Body: &PathWatch{"/a", false}}},
		{`{"xid":7,"op":"watch","path":"/a","recursive":true}`, Request{Op: OpAddWatch, Body: &AddWatch{"/a", 1}}},
		{`{"xid":7,"op":"sync"}`, Request{Op: OpSync, Body: &PathOnly{}}},
		{`{"xid":7,"op":"ping"}`, Request{Op: OpPing}},
		{`{"xid":7,"op":"close"}`, Request{Op: OpCloseSession}},
		{`{"xid":7,"op":"renew"}`, Request{Op: OpRenew, Body: &Renew{[]Held{}}}},
		{`{"xid":7,"op":"sessions","after":"9","limit":5}`, Request{Op: OpSessions, Body: &Sessions{9, 5}}},
		{`{"xid":7,"op":"rewatch","relZxid":"9223372036854775807","watches":{"persistent":["/a"]}}`,
			Request{Op: OpRewatch, Body: &SetWatches{RelZxid: 1<<63 - 1, Data: []string{}, Exist: []string{},
				Child: []string{}, Persistent: []string{"/a"}, Recursive: []string{}}}},
		{`{"xid":7,"op":"multi","ops":[{"op":"check","path":"/a","version":1},{"op":"create","path":"/b"}]}`,
			Request{Op: OpMulti, Body: &znode.Multi{Ops: []znode.Op{
				&znode.Check{Path: "/a", Version: 1}, &znode.Create{Path: "/b", ACL: znode.OpenACL}}}}},
		{`{"xid":7,"op":"multiRead","ops":[{"op":"get","path":"/a"},{"op":"childNames","path":"/a"}]}`,
			Request{Op: OpMultiRead, Body: &MultiRead{[]ReadOp{{OpGetData, "/a"}, {OpGetChildren, "/a"}}}}},
	}
	for _, tt := range tests {
		want := tt.want
		want.Xid = 7
		if got, err := (JSON{}).DecodeRequest([]byte(tt.text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v %+v, %v", tt.text, got, got.Body, err)
		}
	}
}

// Goal: whoever writes a client by hand learns what is wrong, and only text that cannot
// be answered costs the connection.
// Method: one mistake of each kind; the words must name the field and the value.
func TestJSONRequestErrors(t *testing.T) {
	tests := []struct {
		text   string
		err    znode.Error // OK: DecodeRequest itself fails
		detail string
	}{
		{`{"xid":7,"op":"get","pth":"/a"}`, znode.MarshallingError, `field "pth" is unknown`},
		{`{"xid":7,"op":"get","Path":"/a"}`, znode.MarshallingError, `field "Path" is unknown`},
		{`{"xid":7,"op":"get","path":"/a","version":1}`, znode.MarshallingError, `field "version" is not one of get`},
		{`{"xid":7,"op":"get"}`, znode.MarshallingError, `field "path" is missing: get needs it`},
		{`{"xid":7,"op":"get","path":"/a","path":"/b"}`, znode.MarshallingError, `field "path" comes twice`},
		{`{"xid":7,"op":"get","path":5}`, znode.MarshallingError, `field "path" must be a string`},
		{`{"xid":7,"op":"get","path":null}`, znode.MarshallingError, `field "path" must be a string`},
		{`{"path":["a",{"b":[1.5e3,true,null]}],"xid":7,"op":"get"}`, znode.MarshallingError, `field "path" must be a string`},
		{`{"xid":7,"op":"get","path":"/a","watch":1}`, znode.MarshallingError, `field "watch" must be true or false`},
		{`{"xid":7,"op":"set","path":"/a","data":"AQI"}`, znode.MarshallingError, `field "data" must be base64`},
		{`{"xid":7,"op":"set","path":"/a","version":2147483648}`, znode.MarshallingError, `must be an integer in [-2147483648, 2147483647], not "2147483648"`},
		{`{"xid":7,"op":"set","path":"/a","version":1.5}`, znode.MarshallingError, `not "1.5"`},
		{`{"xid":7,"op":"set","path":"/a","seq":"-1"}`, znode.MarshallingError, `field "seq" must not be negative`},
		{`{"xid":7,"op":"set","path":"/a","seq":"x"}`, znode.MarshallingError, `field "seq" must be an integer`},
		{`{"xid":7,"op":"set","path":"/a","seq":true}`, znode.MarshallingError, `field "seq" must be a decimal string`},
		{`{"xid":7,"op":"create","path":"/a","mode":"forever"}`, znode.BadArguments, `field "mode" is not a mode: "forever"`},
		{`{"xid":7,"op":"create","path":"/a","ttlMs":"5"}`, znode.BadArguments, `field "ttlMs" is only for the modes ttl`},
		{`{"xid":7,"op":"create","path":"/a","acl":[{"perms":1,"scheme":"ip"}]}`, znode.MarshallingError, `field "acl" must have perms, scheme and id`},
		{`{"xid":7,"op":"removeWatches","path":"/a","type":"all"}`, znode.MarshallingError, `not "all"`},
		{`{"xid":7,"op":"multi","ops":[{"op":"delete","path":"/a"},{"op":"create","path":"/a","mode":"odd"}]}`, znode.MarshallingError, `ops[1]: field "mode" is not a mode`},
		{`{"xid":7,"op":"multi","ops":[{"op":"multi","ops":[]}]}`, znode.MarshallingError, `ops[0]: field "ops" is not for an operation inside ops`},
		{`{"xid":7,"op":"multi","ops":[{"op":"ping"}]}`, znode.MarshallingError, `ops[0]: field "op" is not an operation for ops: "ping"`},
		{`{"xid":7,"op":"multi","ops":[{"op":"get","path":"/a"}]}`, znode.MarshallingError, `of multi must be creates`},
		{`{"xid":7,"op":"multi","ops":[{"op":"set","path":"/a","seq":"1"}]}`, znode.MarshallingError, `ops[0]: field "seq" is not for an operation inside ops`},
		{`{"xid":7,"op":"multiRead","ops":[{"op":"set","path":"/a"}]}`, znode.MarshallingError, `of multiRead must be get`},
		{`{"xid":7,"op":"multiRead","ops":[{"op":"get","path":"/a","watch":true}]}`, znode.MarshallingError, `field "watch" is not for`},
		{`{"xid":7,"op":"setWatches","relZxid":"1","watches":{"recursive":["/"]}}`, znode.MarshallingError, `of setWatches has no persistent`},
		{`{"xid":7,"op":"sessions","after":"x"}`, znode.MarshallingError, `field "after" must be a session's id`},
		{`{"xid":7,"op":"check","path":"/a"}`, znode.Unimplemented, `"check" is not an operation for clients`},
		{`{"xid":7,"op":"frobnicate"}`, znode.Unimplemented, `"frobnicate" is not an operation for clients`},
		{`{"op":"ping"}`, znode.OK, `no xid`},
		{`{"xid":"7","op":"ping"}`, znode.OK, `no xid`},
		{`{"xid":7}`, znode.OK, `no op`},
		{`[]`, znode.OK, `no xid`},
		{``, znode.OK, `not JSON`},
		{`{"xid":7,"op":"ping"} {}`, znode.OK, `text behind the message`},
		{`{"xid":7,"op":"ping",}`, znode.OK, `comma in front of the end`},
		{`{"xid":7 "op":"ping"}`, znode.OK, `comma missing`},
		{`{"xid":07,"op":"ping"}`, znode.OK, `a value must come here`},
		{`{"xid":7,"op":"get","path":"\ud800"}`, znode.OK, `not a character behind \u`},
		{"{\"xid\":7,\"op\":\"get\",\"path\":\"\xff\"}", znode.OK, `not UTF-8`},
		{"{\"xid\":7,\"op\":\"get\",\"path\":\"\n\"}", znode.OK, `control byte`},
		{`{"xid":7,"op":"get","path":[[[[[[[[1]]]]]]]]}`, znode.OK, `nested too deep`},
	}
	for _, tt := range tests {
		q, err := JSON{}.DecodeRequest([]byte(tt.text))
		if tt.err == znode.OK {
			if err == nil || !strings.Contains(err.Error(), tt.detail) {
				t.Errorf("%s: got %+v, %v; want an error with %q", tt.text, q, err, tt.detail)
			}
			continue
		}
		if err != nil || q.Xid != 7 || q.Body != nil || q.Err != tt.err || !strings.Contains(q.Detail, tt.detail) {
			t.Errorf("%s: got %+v, %v; want %d with %q", tt.text, q, err, tt.err, tt.detail)
		}
	}
}

// Goal: replies and events in JSON are what docs/protocol.md says.
// Method: texts written by hand, compared with the encoding; encoding/json must agree
// that they are JSON.
func TestJSONReplyTexts(t *testing.T) {
	tests := []struct {
		reply Reply
		want  string
	}{
		{Reply{Op: OpCreate, Body: &znode.Result{Kind: znode.ResultCreate, Path: "/a\"\x01é\xff"}}, `"path":"/a\"\u0001é` + "\uFFFD" + `"`},
		{Reply{Op: OpCreate2, Body: &znode.Result{Kind: znode.ResultCreateStat, Path: "/a", Stat: goldenStat}}, `"path":"/a","stat":` + jsonStat},
		{Reply{Op: OpGetData, Body: &DataReply{goldenData, goldenStat}}, `"data":"AQID","stat":` + jsonStat},
		{Reply{Op: OpGetData, Body: &DataReply{nil, goldenStat}}, `"data":null,"stat":` + jsonStat},
		{Reply{Op: OpGetChildren2, Body: &ChildrenReply{[]string{"x", "y"}, goldenStat}}, `"names":["x","y"],"stat":` + jsonStat},
		{Reply{Op: OpGetACL, Body: &ACLReply{znode.OpenACL, goldenStat}}, `"acl":[{"perms":31,"scheme":"world","id":"anyone"}],"stat":` + jsonStat},
		{Reply{Op: OpGetData, Err: znode.NoNode}, `"err":-101,"error":"NoNode"`},
		{Reply{Op: OpGetData, Err: -999, Detail: "why"}, `"err":-999,"error":"Unknown","detail":"why"`},
		{Reply{Op: OpMulti, Body: &znode.Result{Kind: znode.ResultMulti, Sub: []znode.Result{
			{Kind: znode.ResultCreate, Path: "/a"}, {Kind: znode.ResultDelete}, {Kind: znode.ResultCheck}}}},
			`"results":[{"op":"create","path":"/a"},{"op":"delete"},{"op":"check"}]`},
		{Reply{Op: OpMulti, Body: &znode.Result{Kind: znode.ResultMulti, Err: znode.NoNode, Sub: []znode.Result{
			{}, {Err: znode.NoNode}, {Err: znode.RuntimeInconsistency}}}},
			`"err":-101,"error":"NoNode","results":[{"err":0,"error":"OK"},{"err":-101,"error":"NoNode"},{"err":-2,"error":"RuntimeInconsistency"}]`},
		{Reply{Op: OpMulti, Body: &znode.Result{Err: znode.SessionExpired}}, `"err":-112,"error":"SessionExpired"`},
		{Reply{Op: OpRenew, Body: &RenewReply{10000, []znode.Error{0, -101}}}, `"timeoutMs":10000,"held":[0,-101]`},
		{Reply{Op: OpList, Body: &ListReply{[]string{"x", "y"}, []znode.Stat{goldenStat, goldenStat}, true, goldenStat,
			[]znode.Lifetime{{Kind: znode.TTL, TTLMs: 1<<40 - 1}, {Kind: znode.Ephemeral}}, znode.Lifetime{Kind: znode.Container}}},
			`"names":["x","y"],"stats":[` + jsonStat + `,` + jsonStat + `],"more":true,"stat":` + jsonStat +
				`,"lifetimes":[{"mode":"ttl","ttlMs":"1099511627775"},{"mode":"ephemeral"}],"lifetime":{"mode":"container"}`},
		{Reply{Op: OpSessions, Body: &SessionsReply{[]SessionInfo{{9, 10000, "r", -1, 2, 3}}, false}},
			`"sessions":[{"session":"9","timeoutMs":10000,"remote":"r","idleMs":"-1","watches":2,"ephemerals":3}],"more":false`},
		{Reply{Op: OpStatus, Body: &StatusReply{[]Figure{{"n", "v"}, {"m", "w"}}}}, `"figures":{"n":"v","m":"w"}`},
	}
	for _, tt := range tests {
		tt.reply.Xid, tt.reply.Zxid = 7, 99
		got := JSON{}.AppendReply(nil, &tt.reply)
		if want := `{"xid":7,"zxid":"99",` + tt.want + `}`; string(got) != want || !json.Valid(got) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	event := JSON{}.AppendEvent(nil, &Event{Type: znode.EventDataChanged, Path: "/a", Zxid: 99})
	if want := `{"event":"dataChanged","path":"/a","zxid":"99"}`; string(event) != want {
		t.Errorf("got %s, want %s", event, want)
	}
}

// Goal: the handshake in JSON is what docs/protocol.md says.
// Method: texts written by hand, good and bad.
func TestJSONConnectTexts(t *testing.T) {
	got, err := JSON{}.DecodeConnect([]byte(`{"op":"connect","timeoutMs":10000}`))
	if want := (ConnectRequest{TimeoutMs: 10000}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	reply := JSON{}.AppendConnectReply(nil, &ConnectReply{TimeoutMs: 10000, Session: 1 << 60})
	if want := `{"op":"connect","timeoutMs":10000,"session":"1152921504606846976","password":"AAAAAAAAAAAAAAAAAAAAAA=="}`; string(reply) != want {
		t.Errorf("got %s, want %s", reply, want)
	}
	for text, want := range map[string]string{
		`{"timeoutMs":10000}`:              `must have "op":"connect"`,
		`{"op":"ping"}`:                    `must have "op":"connect"`,
		`{"op":"connect","timeout":5}`:     `field "timeout" is unknown`,
		`{"op":"connect","session":"0x5"}`: `field "session" must be an integer`,
		`{"op":"connect"`:                  `not JSON`,
		`"connect"`:                        `must be an object`,
	} {
		if _, err := (JSON{}).DecodeConnect([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Goal: a client reads replies of a newer server.
// Method: fields that nobody knows, everywhere.
func TestJSONRepliesMaySayMore(t *testing.T) {
	text := `{"new":{"a":[1]},"xid":7,"zxid":"1","results":[{"op":"delete","new":1}],"also":null}`
	p, _, err := JSON{}.DecodeMessage([]byte(text), func(int32) (Op, bool) { return OpMulti, true })
	want := &znode.Result{Kind: znode.ResultMulti, Sub: []znode.Result{{Kind: znode.ResultDelete}}}
	if err != nil || !reflect.DeepEqual(p.Body, want) {
		t.Errorf("got %+v, %v", p, err)
	}
}

// Goal: strings with any character are JSON that others read.
// Method: random strings, encoded here and decoded by encoding/json, and the other way.
func TestJSONStringsAgreeWithOthers(t *testing.T) {
	s := newSource(t)
	for range 2000 {
		var b []rune
		for range s.IntN(8) {
			b = append(b, rune(s.IntN([]int{0x80, 0x800, 0x110000}[s.IntN(3)])))
		}
		text := string(b) // surrogates became U+FFFD
		var got string
		if err := json.Unmarshal(addText(nil, text), &got); err != nil || got != text {
			t.Fatalf("%q became %q, %v", text, got, err)
		}
		theirs, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		r := jsonReader{buf: theirs}
		if got := r.str(); got != text || r.problem("string") != nil {
			t.Fatalf("%s became %q, %v", theirs, got, r.problem("string"))
		}
	}
}
