package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Goal: the ready line is true: the port is the real one and requests are served; a
// signal stops in order with exit code 0, and the directory can be used again. Method:
// a real process, twice on one directory, with each of the two signals.
func TestReadyServeStop(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := start(t, nil, "--data-dir", dir)
		if p.fields["data-dir"] != dir || p.fields["version"] == "" || strings.HasSuffix(p.fields["listen"], ":0") {
			t.Errorf("ready line %q", p.ready)
		}
		for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/version": p.fields["version"], "/metrics": "tenure_znodes "} {
			if code, body := p.get(path, nil); code != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %d %q", path, code, body)
			}
		}
		if code := p.stop(sig); code != exitOK {
			t.Errorf("exit code %d after %v\n%s", code, sig, p.stderr)
		}
		if !strings.Contains(p.stderr.String(), "msg=ready") || !strings.Contains(p.stderr.String(), "msg=stopped") {
			t.Errorf("log lacks start or stop:\n%s", p.stderr)
		}
		if p.rest.String() != "" {
			t.Errorf("standard output has more than the ready line: %q", p.rest)
		}
	}
}

// Goal: --hints prints what to try, with the address and the place of the token.
func TestHints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, []string{"TENURE_LOG_FORMAT=json"}, "--data-dir="+dir, "--hints")
	addr := p.fields["listen"]
	if code := p.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d\n%s", code, p.stderr)
	}
	for _, want := range []string{"TENURE_ENDPOINTS=" + addr, "create /hello world", "curl http://" + addr + "/healthz", filepath.Join(dir, "admin.token")} {
		if !strings.Contains(p.rest.String(), want) {
			t.Errorf("hints lack %q:\n%s", want, p.rest)
		}
	}
	for line := range strings.Lines(p.stderr.String()) {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("with log-format json: %q", line)
		}
	}
}

// Goal: a server that cannot work does not start: an exit code other than 0 within 3 s,
// key, value and what is allowed in the message, and nothing half-started. Method: real
// processes, one mistake each.
func TestC145StartMistakes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	addr, port := taken.Addr().String(), strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("lisen: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"port in use", []string{"--listen", addr}, exitError, []string{"listen", addr, "in use"}},
		{"unknown flag", []string{"--lisen", addr}, exitUsage, []string{"--lisen", "did you mean listen?"}},
		{"misspelt duration", []string{"--history-age", "10 sec"}, exitUsage, []string{"history-age", "10 sec", "unit"}},
		{"flag twice", []string{"--listen", addr, "--listen", addr}, exitUsage, []string{"listen", "twice"}},
		{"same port twice", []string{"--listen", addr, "--peer-listen", addr}, exitUsage, []string{"peer-listen", addr, "port of listen"}},
		{"members without this one", []string{"--peer-listen", "127.0.0.1:2", "--initial-members", "2=127.0.0.1:2"}, exitUsage, []string{"initial-members", "2=127.0.0.1:2", "member-id is 1"}},
		{"members' port in use", []string{"--peer-listen", addr}, exitError, []string{"peer-listen", addr, "in use"}},
		{"ZooKeeper's port in use", []string{"--zk-listen", addr}, exitError, []string{"zk-listen", addr, "in use"}},
		{"all addresses", []string{"--listen", ":" + port}, exitUsage, []string{"listen", port, "insecure"}},
		{"unknown key", []string{"--config", file}, exitUsage, []string{file, "lisen", "did you mean listen?"}},
		{"no file", []string{"--config", file + "x"}, exitUsage, []string{file + "x"}},
		{"data-dir is a file", []string{"--data-dir", file}, exitError, []string{"data-dir", file, "not a directory"}},
		{"data-dir without parent", []string{"--data-dir", "/no/such/parent"}, exitError, []string{"data-dir", "/no/such/parent", "no such file"}},
		{"data-dir cannot be written", []string{"--data-dir", "/proc"}, exitError, []string{"data-dir", "/proc", "writable"}},
		{"certificate missing", []string{"--listen", "127.0.0.1:0", "--tls-cert", file + "c", "--tls-key", file + "k"}, exitError, []string{file + "c"}},
		{"word that is no flag", []string{"--no-ttl", "false"}, exitUsage, []string{`"false"`, "--name=false"}},
		{"unknown command", []string{"serv"}, exitUsage, []string{`"serv"`, "check, restore"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			args := row.args
			if !strings.Contains(strings.Join(args, " "), "data-dir") && strings.HasPrefix(args[0], "-") {
				args = append([]string{"--data-dir", dir}, args...)
			}
			code, stdout, stderr, took := finish(t, nil, args...)
			if code != row.code || stdout != "" {
				t.Errorf("exit code %d, want %d; standard output %q", code, row.code, stdout)
			}
			if took > 3*time.Second {
				t.Errorf("took %v", took)
			}
			for _, want := range row.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("message lacks %q:\n%s", want, stderr)
				}
			}
			if _, err := os.Stat(dir); row.code == exitUsage && err == nil {
				t.Error("the data directory was made in spite of the mistake")
			}
		})
	}
	code, _, stderr, _ := finish(t, nil)
	if code != exitUsage || !strings.Contains(stderr, "data-dir") || !strings.Contains(stderr, "required") {
		t.Errorf("without data-dir: %d %s", code, stderr)
	}
}

// Goal: two processes never share a data directory, and the second is told who has it;
// kill -9 of the first frees it.
func TestDataDirLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := start(t, nil, "--data-dir", dir)
	for _, args := range [][]string{
		{"--listen", "127.0.0.1:0", "--zk-listen", "none", "--data-dir", dir},
		{"check", "--data-dir", dir},
		{"restore", "--data-dir", dir, "--from", os.DevNull},
	} {
		code, _, stderr, took := finish(t, nil, args...)
		if holder := "process " + strconv.Itoa(first.cmd.Process.Pid); code != exitError || !strings.Contains(stderr, holder) || !strings.Contains(stderr, dir) || took > 3*time.Second {
			t.Errorf("%v: exit code %d after %v: %s", args, code, took, stderr)
		}
	}
	first.stop(syscall.SIGKILL)
	second := start(t, nil, "--data-dir", dir)
	if code := second.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d\n%s", code, second.stderr)
	}
}

// Goal: no secret is ever written to log or output. Method: plant one in the
// environment, read the token, present both and wrong ones over HTTP with the most
// talkative log, and search everything that was written.
func TestNoSecretIsLogged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, []string{"TENURE_SUPER_DIGEST=super:plantedDigest"}, "--data-dir", dir, "--log-level", "debug", "--hints")
	token := adminToken(t, dir)
	for _, presented := range []string{token, "plantedWrongToken", "x" + token} {
		p.get("/v1/snapshot", http.Header{"Authorization": {"Bearer " + presented}})
		p.get("/v1/snapshot?token="+presented, nil)
		p.get("/", http.Header{"Authorization": {presented}, "Origin": {"https://evil.test"}})
	}
	p.stop(syscall.SIGTERM)
	code, printed, stderr, _ := finish(t, []string{"TENURE_SUPER_DIGEST=super:plantedDigest"}, "config", "check", "--data-dir", dir)
	if code != exitOK || !strings.Contains(printed, "[redacted]") {
		t.Errorf("config check: %d %s", code, printed)
	}
	_, _, refused, _ := finish(t, []string{"TENURE_SUPER_DIGEST=plantedDigest"}, "config", "check", "--data-dir", dir)
	all := p.ready + p.rest.String() + p.stderr.String() + printed + stderr + refused
	for _, secret := range []string{"plantedDigest", "plantedWrongToken", token} {
		if strings.Contains(all, secret) {
			t.Errorf("%q was written:\n%s", secret, all)
		}
	}
}

// Goal: the ready line names the member and where others reach it, if there can be any; one
// that waits for a majority says so in its log, answers probes, is not ready, and stops in
// order. Method: a sole member with a port for others, and one of three founders.
func TestMemberStarts(t *testing.T) {
	sole := start(t, nil, "--data-dir", filepath.Join(t.TempDir(), "data"), "--peer-listen", "127.0.0.1:0")
	if sole.fields["member"] != "1" || sole.fields["peer-listen"] == "" || strings.HasSuffix(sole.fields["peer-listen"], ":0") {
		t.Errorf("ready line %q", sole.ready)
	}
	sole.stop(syscall.SIGTERM)

	listen, peer := "127.0.0.1:"+freePort(t), "127.0.0.1:"+freePort(t)
	var stdout, stderr lockedBuffer
	cmd := command(t, nil, "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", listen, "--zk-listen", "none",
		"--peer-listen", peer, "--initial-members", "1="+peer+",2=127.0.0.1:1,3=127.0.0.1:2")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	p := &process{t: t, fields: map[string]string{"listen": listen}}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startDeadline); !strings.Contains(stderr.String(), "waiting for a majority"); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("it does not wait:\n%s", stderr.String())
		}
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/v1/status": http.StatusOK, "/metrics": http.StatusOK} {
		if code, body := p.get(path, nil); code != want || path == "/readyz" && body != "no leader\n" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || stdout.String() != "" || !strings.Contains(stderr.String(), "msg=stopped") {
		t.Errorf("stop: %v, standard output %q\n%s", err, stdout.String(), stderr.String())
	}
}
