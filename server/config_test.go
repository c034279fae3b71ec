package server

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// writeConfig puts text into a file that LoadConfig can be given.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tenured.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// parseFlags collects args the way cmd/tenured does.
func parseFlags(args ...string) (ConfigFlags, error) {
	flags := ConfigFlags{}
	fs := flag.NewFlagSet("tenured", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	flags.Register(fs)
	return flags, fs.Parse(args)
}

// Goal: no field of Config lacks a row of the table, and no two rows share a field.
// Method: set each row on a zero Config and see which field of the struct moved.
func TestConfigTableCoversEveryField(t *testing.T) {
	samples := []string{"true", "17s", "64KiB", "17", "none", "json", "info", "127.0.0.1:9", "https://a.test", "a.test", "super:x", "text", "1=a:1", "0123456789abcdef"}
	seen := map[string]string{}
	for i := range settings {
		s := &settings[i]
		var c Config
		for _, sample := range samples {
			c = Config{}
			if s.value(&c).set(sample) == nil && !s.value(&c).isZero() {
				break
			}
		}
		moved := changedFields(reflect.ValueOf(c), "")
		if len(moved) != 1 {
			t.Errorf("%s sets fields %v, want exactly one", s.name, moved)
			continue
		}
		if other := seen[moved[0]]; other != "" {
			t.Errorf("%s and %s both set %s", s.name, other, moved[0])
		}
		seen[moved[0]] = s.name
	}
	for _, field := range allFields(reflect.TypeFor[Config](), "") {
		if seen[field] == "" {
			t.Errorf("no setting for Config.%s", field)
		}
	}
}

func changedFields(v reflect.Value, prefix string) []string {
	var names []string
	for i := range v.NumField() {
		name := prefix + v.Type().Field(i).Name
		if f := v.Field(i); f.Kind() == reflect.Struct {
			names = append(names, changedFields(f, name+".")...)
		} else if !f.IsZero() {
			names = append(names, name)
		}
	}
	return names
}

func allFields(t reflect.Type, prefix string) []string {
	var names []string
	for f := range t.Fields() {
		if f.Type.Kind() == reflect.Struct {
			names = append(names, allFields(f.Type, prefix+f.Name+".")...)
		} else {
			names = append(names, prefix+f.Name)
		}
	}
	return names
}

// Goal: flags beat environment beats file beats defaults, for one setting of each kind,
// and an emptied value falls back to the default. Method: give all three.
func TestConfigPrecedence(t *testing.T) {
	file := writeConfig(t, "data-dir: /file\nlisten: 127.0.0.1:1\nmax-sessions: 1\nlog-level: debug\nno-ttl: true\nallowed-hosts: [a.test, b.test]\nhistory-age: 2h\n")
	flags, err := parseFlags("--listen", "127.0.0.1:3", "--max-sessions=3", "--enforce-quota", "--history-age=")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"TENURE_LISTEN=127.0.0.1:2", "TENURE_MAX_SESSIONS=2", "TENURE_CACHE_BYTES=2MiB", "TENURE_LOG_LEVEL=warn", "HOME=/", "TENURE_ENDPOINTS=x"}
	l, err := LoadConfig(Sources{Flags: flags, Environ: env, File: file})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	got := fmt.Sprint(c.DataDir, c.Listen, c.MaxSessions, c.CacheBytes, c.LogLevel, c.NoTTL, c.EnforceQuota, c.AllowedHosts, c.HistoryAge, c.MaxWatches)
	want := fmt.Sprint("/file", "127.0.0.1:3", 3, 2<<20, "warn", true, true, []string{"a.test", "b.test"}, time.Hour, 5_000_000)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if l.Origin["listen"] != "flag --listen" || l.Origin["log-level"] != "environment TENURE_LOG_LEVEL" ||
		!strings.HasSuffix(l.Origin["no-ttl"], "tenured.yaml line 5") || l.Origin["history-age"] != "" {
		t.Errorf("origins %v", l.Origin)
	}
	if len(l.Warnings) != 0 {
		t.Errorf("warnings %v", l.Warnings)
	}
}

// Goal: a mistake in a configuration is refused with key, value, place and what is
// allowed; trailing blanks are no mistake. Method: a table of whole files, which all
// have a valid data-dir unless the row is about it.
func TestC145ConfigMistakes(t *testing.T) {
	for _, row := range []struct {
		name, file string
		want       []string // all in the error; none: accepted
	}{
		{"trailing blanks", "no-ttl: 'true '\nlisten: \"127.0.0.1:0 \"\n", nil},
		{"unknown key", "lisen: 127.0.0.1:1\n", []string{"lisen", `"127.0.0.1:1"`, "line 1", "did you mean listen?"}},
		{"unknown key unlike any", "zzzzzzzzzzz: 1\n", []string{"zzzzzzzzzzz", "print-default"}},
		{"two values for one key", "max-sessions: 1\nmax-sessions: 2\n", []string{"max-sessions", `"2"`, "given twice, first in line 1"}},
		{"misspelt duration", "history-age: 10 sec\n", []string{"history-age", `"10 sec"`, "number with a unit"}},
		{"duration without unit", "reap-interval: 60\n", []string{"reap-interval", `"60"`, "number with a unit"}},
		{"misspelt size", "cache-bytes: 64 Mb\n", []string{"cache-bytes", `"64 Mb"`, "KiB"}},
		{"out of range", "max-sessions: 0\n", []string{"max-sessions", `"0"`, "from 1 to"}},
		{"negative size", "cache-bytes: -1\n", []string{"cache-bytes", `"-1"`}},
		{"size that overflows", "cache-bytes: 9999999999TiB\n", []string{"cache-bytes", "9999999999TiB"}},
		{"not a boolean", "no-ttl: yes please\n", []string{"no-ttl", `"yes please"`, "true or false"}},
		{"not a word of the list", "log-format: xml\n", []string{"log-format", `"xml"`, "text, json"}},
		{"null", "listen:\n", []string{"listen", "no value"}},
		{"nested", "tls: {cert: a}\n", []string{"tls", "no such setting"}},
		{"mapping for a value", "listen: {a: b}\n", []string{"listen", "one plain value"}},
		{"not a mapping", "- a\n", []string{"mapping of settings"}},
		{"not YAML", "a: [\n", []string{"not valid YAML"}},
		{"address without port", "listen: 127.0.0.1\n", []string{"listen", `"127.0.0.1"`, "host:port"}},
		{"port too large", "listen: 127.0.0.1:70000\n", []string{"listen", "70000", "0 to 65535"}},
		{"same port twice", "listen: 127.0.0.1:7\npeer-listen: 127.0.0.1:7\n", []string{"peer-listen", "port of listen"}},
		{"reachable without TLS", "listen: 0.0.0.0:2180\n", []string{"listen", `"0.0.0.0:2180"`, "insecure"}},
		{"all addresses without TLS", "listen: ':2180'\n", []string{"listen", "insecure"}},
		{"reachable, accepted", "listen: 0.0.0.0:2180\ninsecure: true\n", nil},
		{"TLS without client auth", "listen: 0.0.0.0:2180\ntls-cert: a\ntls-key: b\n", []string{"tls-client-auth = require"}},
		{"certificate without key", "tls-cert: a\n", []string{"tls-cert", "tls-key"}},
		{"client auth without CA", "tls-cert: a\ntls-key: b\ntls-client-auth: require\n", []string{"tls-client-auth", "tls-client-ca"}},
		{"CA without client auth", "tls-cert: a\ntls-key: b\ntls-client-ca: c\n", []string{"tls-client-ca", "no effect"}},
		{"timeouts crossed", "min-session-timeout: 10s\nmax-session-timeout: 5s\n", []string{"min-session-timeout", "10s", "max-session-timeout = 5s"}},
		{"outbox below a message", "outbox-bytes: 1MiB\n", []string{"outbox-bytes", "1MiB", "1048575"}},
		{"origin with a path", "allowed-origins: [https://a.test/x]\n", []string{"allowed-origins", "https://a.test/x"}},
		{"origin wildcard", "allowed-origins: ['https://*.test']\n", []string{"allowed-origins", "*.test"}},
		{"host with a port", "allowed-hosts: [a.test:80]\n", []string{"allowed-hosts", "a.test:80"}},
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

// Goal: a missing data directory, a missing file and a flag given twice are named.
func TestC145ConfigSourcesMistakes(t *testing.T) {
	if _, err := LoadConfig(Sources{}); err == nil || !strings.Contains(err.Error(), "data-dir") {
		t.Errorf("no data-dir: %v", err)
	}
	if _, err := LoadConfig(Sources{File: "/no/such/file"}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("no file: %v", err)
	}
	if _, err := parseFlags("--listen=a", "--listen=b"); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("flag twice: %v", err)
	}
	l, err := LoadConfig(Sources{Flags: ConfigFlags{"data-dir": "relative/dir"}, Environ: []string{"TENURE_LISTN=x"}})
	if err != nil || !filepath.IsAbs(l.Config.DataDir) {
		t.Errorf("relative data-dir became %q, %v", l.Config.DataDir, err)
	}
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "TENURE_LISTN") || !strings.Contains(l.Warnings[0], "did you mean listen?") {
		t.Errorf("warnings %q", l.Warnings)
	}
}

// Goal: what `config check` prints is a file that loads to the same configuration, and
// secrets are not in it. Method: print, load, print again.
func TestConfigPrintRoundTrip(t *testing.T) {
	const secret = "super:plantedSecretOfConfig="
	flags := ConfigFlags{"data-dir": "/d", "super-digest": secret, "allowed-hosts": "a.test,b.test", "cache-bytes": "1025", "history-age": "90m"}
	l, err := LoadConfig(Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if _, err := l.WriteTo(&first); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(first.String(), "plantedSecret") || !strings.Contains(first.String(), redacted) {
		t.Errorf("secret printed:\n%s", first.String())
	}
	again, err := LoadConfig(Sources{File: writeConfig(t, strings.ReplaceAll(first.String(), "'"+redacted+"'", secret))})
	if err != nil {
		t.Fatalf("%v\n%s", err, first.String())
	}
	if !reflect.DeepEqual(again.Config, l.Config) {
		t.Errorf("got %+v\nwant %+v", again.Config, l.Config)
	}
	if _, err := again.WriteTo(&second); err != nil || second.Len() == 0 {
		t.Error(err)
	}
}

// Goal: the printed default file sets nothing as it is, and with every line that has a
// default enabled it loads to exactly the defaults.
func TestConfigPrintDefault(t *testing.T) {
	var out bytes.Buffer
	if err := WriteDefaultConfig(&out); err != nil {
		t.Fatal(err)
	}
	var enabled strings.Builder
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") && !strings.HasSuffix(line, ":\n") {
			line = line[1:]
		}
		enabled.WriteString(line)
	}
	for _, text := range []string{out.String(), enabled.String()} {
		l, err := LoadConfig(Sources{File: writeConfig(t, text), Environ: []string{"TENURE_DATA_DIR=/d"}})
		if err != nil {
			t.Fatal(err)
		}
		if want := (Config{DataDir: "/d"}).WithDefaults(); !reflect.DeepEqual(l.Config, want) {
			t.Errorf("got %+v\nwant %+v", l.Config, want)
		}
	}
}

// Goal: sizes survive formatting and parsing exactly.
func TestBytesRoundTrip(t *testing.T) {
	for _, n := range []int64{0, 1, 1000, 1024, 1048575, 1 << 20, 3 << 30, 5 << 40, 1<<50 - 1} {
		if got, err := parseBytes(formatBytes(n)); err != nil || got != n {
			t.Errorf("%d formats to %s and parses to %d, %v", n, formatBytes(n), got, err)
		}
	}
	for text, want := range map[string]int64{"64MiB": 64 << 20, "64 MiB": 64 << 20, "1KB": 1000, "7B": 7, "2GB": 2e9} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%s parses to %d, %v", text, got, err)
		}
	}
}

// Goal: no way of formatting shows a Secret. Method: every verb, %+v of a struct around
// it, JSON and slog are tried by name in the table.
func TestSecretNeverShows(t *testing.T) {
	c := Config{SuperDigest: "super:planted"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{c, &c, c.SuperDigest, hashAdminToken("super:planted")} {
			if s := fmt.Sprintf(verb, v); strings.Contains(s, "planted") || strings.Contains(s, fmt.Sprintf("%x", "planted")) {
				t.Errorf("%s of %T shows the secret: %s", verb, v, s)
			}
		}
	}
	if err := (Config{DataDir: "/d", SuperDigest: "planted"}).Validate(); err == nil || strings.Contains(err.Error(), "planted") {
		t.Errorf("the error of a bad secret: %v", err)
	}
}
