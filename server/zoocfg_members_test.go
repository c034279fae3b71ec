package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeMyID puts a myid into dir.
func writeMyID(t *testing.T, dir, id string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "myid"), []byte(id), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Goal: the members of a zoo.cfg become those of an ensemble of Tenure's, the same on each;
// a single one stays alone. Method: a table of files, with what myid says, and the settings
// that they must make; some flags lift what a file alone lacks.
func TestZooCfgMembers(t *testing.T) {
	const three = "server.1=zoo1:2888:3888\nserver.2=[::1]:2888:3888:participant;127.0.0.1:2199\nserver.3=zoo3:2889:3889|zoo3b:1:2\n"
	const list = "1=zoo1:2888,2=[::1]:2888,3=zoo3:2889"
	for _, row := range []struct {
		text, id string
		flags    ConfigFlags
		want     string
	}{
		{three, "2\n", nil, "member-id 2; initial-members " + list + "; peer-listen [::1]:2888; zk-listen 127.0.0.1:2199"},
		{three, "1", ConfigFlags{"insecure": "true"}, "member-id 1; initial-members " + list + "; peer-listen zoo1:2888"},
		{three + "quorumListenOnAllIPs=true", "3", ConfigFlags{"insecure": "true"}, "member-id 3; peer-listen :2889; insecure true"},
		{three, "1", ConfigFlags{"peer-tls-cert": "c", "peer-tls-key": "k", "peer-tls-ca": "a"}, "peer-listen zoo1:2888; insecure false"},
		{three, "", ConfigFlags{"member-id": "2", "initial-members": "2=127.0.0.1:1,4=127.0.0.1:2", "peer-listen": "127.0.0.1:1"},
			"member-id 2; initial-members 2=127.0.0.1:1,4=127.0.0.1:2; peer-listen 127.0.0.1:1"},
		{"server.3=127.0.0.1:2888:3888", "3", nil, "member-id 1; initial-members ; peer-listen none"},
		{"server.3=127.0.0.1:2888:3888\nquorumListenOnAllIPs=true", "", nil, "member-id 1; peer-listen none"},
	} {
		dir := t.TempDir()
		if row.id != "" {
			writeMyID(t, dir, row.id)
		}
		l, err := LoadConfig(Sources{ZooCfg: zooCfgOf(t, dir, row.text), Flags: row.flags})
		if err != nil {
			t.Errorf("%q: %v", row.text, err)
			continue
		}
		for setting := range strings.SplitSeq(row.want, "; ") {
			name, value, _ := strings.Cut(setting, " ")
			if got := settingNamed(name).value(&l.Config).get(); got != value {
				t.Errorf("%q: %s = %q, want %q", row.text, name, got, value)
			}
		}
		for _, z := range l.ZooCfg {
			if strings.HasPrefix(z.Key, "server.") && strings.Contains(row.text, "server.1") && z.Text == "this member is alone" {
				t.Errorf("%q: %s", row.text, z)
			}
		}
	}
}

// Goal: members of which this one is none, which cannot found an ensemble, or which other
// machines can reach without TLS are refused with file, line and what to do. Method: a
// table of files and of what myid says.
func TestC145ZooCfgMemberMistakes(t *testing.T) {
	const two = "server.1=127.0.0.1:2888:3888\nserver.2=127.0.0.1:2889:3889\n"
	for _, row := range []struct {
		text, id string
		want     []string
	}{
		{two, "", []string{"line 1", "server.1", "myid", "member-id"}},
		{two, "3", []string{"server.1", "none of them is this one", "myid says 3"}},
		{"server.3=a:1:2", "4", []string{"server.3", "myid says 4"}},
		{two + "server.3=127.0.0.1:2890:3890:observer", "1", []string{"line 3", "server.3", "observer", "tenure member add"}},
		{"server.1=127.0.0.1:2888:3888\nserver.256=127.0.0.1:2889:3889\n", "1", []string{"line 2", "server.256", "1 to 255"}},
		{"server.1=127.0.0.1:2888:3888\nserver.2=127.0.0.1:2888:3889\n", "1", []string{"initial-members", "127.0.0.1:2888 twice"}},
		{"server.1=zoo1:2888:3888\nserver.2=zoo2:2888:3888\n", "2", []string{"peer-listen", "zoo2:2888", "line 2, server.2", "sslQuorum", "--peer-tls-cert", "--insecure"}},
		{"server.1=zoo1:2888:3888\nserver.2=zoo2:0:3888\n", "1", []string{"becomes initial-members", "from 1 to 65535"}},
	} {
		dir := t.TempDir()
		if row.id != "" {
			writeMyID(t, dir, row.id)
		}
		_, err := LoadConfig(Sources{ZooCfg: zooCfgOf(t, dir, row.text)})
		if err == nil {
			t.Errorf("%q was accepted", row.text)
			continue
		}
		for _, want := range row.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %q lacks %q", row.text, err, want)
			}
		}
	}
}
