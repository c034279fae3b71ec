package server

import (
	"fmt"
	"strings"
	"testing"
)

// Goal: settings of an ensemble that cannot work are refused with key, value and what is
// allowed; those that can are not. Method: a table of whole files.
func TestC145MemberMistakes(t *testing.T) {
	const three = "initial-members: '1=a:2182,2=b:2182,3=c:2182'\n"
	const tls = "peer-tls-cert: c\npeer-tls-key: k\npeer-tls-ca: a\n"
	const joins = "join: true\ncluster-id: 0123456789abcdef\n"
	for _, row := range []struct {
		name, file string
		want       []string // all in the error; none: accepted
	}{
		{"alone", "member-id: 255\n", nil},
		{"alone, may grow", "peer-listen: 127.0.0.1:2182\n", nil},
		{"alone, any port", "peer-listen: 127.0.0.1:0\n", nil},
		{"three", "peer-listen: 0.0.0.0:2182\n" + tls + three, nil},
		{"three, as a list", "peer-listen: 127.0.0.1:1\ninitial-members: [1=127.0.0.1:1, 2=127.0.0.1:2]\n", nil},
		{"joins", "member-id: 4\npeer-listen: 127.0.0.1:9\n" + three + joins, nil},
		{"everybody may join", "peer-listen: ':2182'\ninsecure: true\n" + three, nil},

		{"id too large", "member-id: 256\n", []string{"member-id", `"256"`, "from 1 to 255"}},
		{"id 0", "member-id: 0\n", []string{"member-id", `"0"`, "from 1 to 255"}},
		{"reachable without TLS", "peer-listen: 0.0.0.0:2182\n" + three, []string{"peer-listen", `"0.0.0.0:2182"`, "peer-tls-cert", "insecure"}},
		{"TLS in part", "peer-listen: 127.0.0.1:2182\npeer-tls-cert: c\npeer-tls-ca: a\n", []string{"peer-tls-key", `""`, "go together"}},
		{"TLS without a door", "peer-tls-cert: c\n", []string{"peer-tls-cert", `"c"`, "needs peer-listen"}},
		{"members without a door", three, []string{"initial-members", "needs peer-listen"}},
		{"without itself", "peer-listen: 127.0.0.1:2182\nmember-id: 4\n" + three, []string{"initial-members", "1=a:2182", "must contain this member", "member-id is 4"}},
		{"member twice", "peer-listen: a:2182\ninsecure: true\ninitial-members: '1=a:2182,1=b:2182'\n", []string{"initial-members", "has member 1 twice"}},
		{"address twice", "peer-listen: a:2182\ninsecure: true\ninitial-members: '1=a:2182,2=A:2182'\n", []string{"initial-members", "a:2182 twice", "members 1 and 2"}},
		{"blank member", "peer-listen: 127.0.0.1:1\ninitial-members: '1=127.0.0.1:1,,2=127.0.0.1:2'\n", []string{"initial-members", "ID=HOST:PORT"}},
		{"member without a port", "initial-members: '1=a'\n", []string{"initial-members", `"1=a"`, "HOST:PORT"}},
		{"member at port 0", "initial-members: '1=a:0'\n", []string{"initial-members", "from 1 to 65535"}},
		{"member at all addresses", "initial-members: '1=0.0.0.0:2182'\n", []string{"initial-members", "0.0.0.0", "can dial"}},
		{"member without an id", "initial-members: 'a:2182'\n", []string{"initial-members", "ID=HOST:PORT", "from 1 to 255"}},
		{"member 256", "initial-members: '256=a:2182'\n", []string{"initial-members", "256=a:2182", "from 1 to 255"}},
		{"advertised otherwise", "peer-listen: a:2182\npeer-advertise: x:2182\ninsecure: true\n" + three, []string{"peer-advertise", `"x:2182"`, "a:2182"}},
		{"listens elsewhere", "peer-listen: 127.0.0.1:2182\npeer-advertise: 127.0.0.1:2182\n" + three, []string{"peer-advertise", "address of member 1", "a:2182"}},
		{"nothing to advertise", "peer-listen: ':2182'\ninsecure: true\n", []string{"peer-advertise", "is needed", ":2182"}},
		{"nothing to advertise, any port", "peer-listen: ':0'\ninsecure: true\n", []string{"peer-advertise", "is needed", ":0"}},
		{"advertised port 0", "peer-listen: 127.0.0.1:2182\npeer-advertise: a:0\n", []string{"peer-advertise", `"a:0"`, "from 1 to 65535"}},
		{"joins nothing", "peer-listen: 127.0.0.1:9\njoin: true\n" + three, []string{"join", "cluster-id", "member add"}},
		{"joins nobody", "peer-listen: 127.0.0.1:9\n" + joins, []string{"join", "initial-members"}},
		{"joins itself", "peer-listen: 127.0.0.1:9\n" + joins + "initial-members: 1=127.0.0.1:9\n", []string{"initial-members", "another member"}},
		{"joins without a door", joins + three, []string{"initial-members", "needs peer-listen"}},
		{"ensemble without join", "peer-listen: 127.0.0.1:9\ncluster-id: 0123456789abcdef\n", []string{"cluster-id", "0123456789abcdef", "without join"}},
		{"ensemble of another form", "cluster-id: 0x123\n", []string{"cluster-id", `"0x123"`, "16 hexadecimal digits"}},
		{"name with a blank", "cluster: a b\n", []string{"cluster", `"a b"`, "without blanks"}},
		{"hasty elections", "election-timeout: 50ms\n", []string{"election-timeout", `"50ms"`, "100ms to 1m"}},
		{"port of another door", "zk-listen: 127.0.0.1:7\npeer-listen: 127.0.0.1:7\n", []string{"peer-listen", "port of zk-listen"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := LoadConfig(Sources{File: writeConfig(t, row.file), Environ: []string{"TENURE_DATA_DIR=/d"}})
			if (err == nil) != (row.want == nil) {
				t.Fatalf("error %v, want %q", err, row.want)
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

// Goal: founders agree on the ensemble's id without talking, however each writes its
// list; ensembles of another name or other members have another; a sole founder leaves it
// to its log, and who joins has the one that it was given. Method: pairs of settings.
func TestClusterID(t *testing.T) {
	of := func(name string, members ...string) uint64 {
		return (&Config{ClusterName: name, InitialMembers: members}).Cluster()
	}
	want := of("tenure", "1=a:2182", "2=[::1]:2182", "3=c:2182")
	if want == 0 || want != of("tenure", "3=C:2182", "02=[0:0:0:0:0:0:0:1]:2182", "1 = a:02182") {
		t.Error("the id depends on how the list is written")
	}
	for _, other := range []uint64{
		of("other", "1=a:2182", "2=[::1]:2182", "3=c:2182"), of("tenure", "1=a:2182", "2=[::1]:2182"),
		of("tenure", "1=a:2182", "2=[::1]:2182", "3=c:2183"), of("tenure", "1=a:2182", "3=[::1]:2182", "2=c:2182"),
	} {
		if other == want {
			t.Error("two ensembles have one id")
		}
	}
	if got := of("tenure"); got != 0 {
		t.Errorf("a sole founder's is %x", got)
	}
	c := Config{ClusterID: "00000000000000ff", InitialMembers: []string{"1=a:2182"}, Join: true}
	if got := c.Cluster(); got != 255 {
		t.Errorf("who joins has %x", got)
	}
}

// Goal: what the others dial is peer-advertise, else the founder's own entry, else the
// address that is listened at.
func TestAdvertise(t *testing.T) {
	var got []string
	for _, c := range []Config{
		{},
		{PeerListen: "127.0.0.1:9"},
		{PeerListen: ":9", PeerAdvertise: "Zoo1:9"},
		{PeerListen: ":9", MemberID: 2, InitialMembers: []string{"1=a:1", "2=b:2"}},
		{PeerListen: ":9", MemberID: 3, Join: true, PeerAdvertise: "c:3", InitialMembers: []string{"1=a:1"}},
	} {
		got = append(got, c.Advertise())
	}
	if want := `["" "127.0.0.1:9" "zoo1:9" "b:2" "c:3"]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("got  %q\nwant %s", got, want)
	}
}
