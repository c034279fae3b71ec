package tests

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// documentedAddress is where docs/protocol.md says the server is; the tests put their
// own server's address in its place.
const documentedAddress = "127.0.0.1:2180"

// interpreter returns the first of commands that can run probe, which is appended to
// it. Where none can the test is skipped; TENURE_REQUIRE_FOREIGN=1 makes it fail.
func interpreter(t *testing.T, probe string, commands ...[]string) []string {
	for _, command := range commands {
		if exec.Command(command[0], append(command[1:], probe)...).Run() == nil {
			return command
		}
	}
	if os.Getenv("TENURE_REQUIRE_FOREIGN") == "1" {
		t.Fatalf("none of %v can run %q", commands, probe)
	}
	t.Skipf("none of %v can run %q; TENURE_REQUIRE_FOREIGN=1 makes this an error", commands, probe)
	return nil
}

// documented returns the fenced blocks of docs/protocol.md in one language.
func documented(t *testing.T, language string) []string {
	text, err := os.ReadFile(filepath.Join("..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```").FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(match[1]))
	}
	if len(blocks) == 0 {
		t.Fatalf("docs/protocol.md has no block in %s", language)
	}
	return blocks
}

// startServer runs the daemon, built from this checkout, on a free port of loopback and
// returns its address. It is killed and waited for at the end of the test.
func startServer(t *testing.T) string {
	dir := t.TempDir()
	daemon := filepath.Join(dir, "tenured")
	if out, err := exec.Command("go", "build", "-o", daemon, "../cmd/tenured").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(daemon, "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0")
	output, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	address, drained := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(drained)
		ready := regexp.MustCompile(`^tenured ready listen=(\S+)`)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			t.Log(lines.Text())
			if m := ready.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		<-drained
		output.Close()
	})
	select {
	case at := <-address:
		return at
	case <-drained:
		t.Fatal("the server ended before it was ready")
	case <-time.After(30 * time.Second):
		t.Fatal("the server did not become ready within 30 s")
	}
	return ""
}

// runDocumented runs every block as printed, but for the address, and wants it to
// succeed and to print something.
func runDocumented(t *testing.T, language string, command []string) {
	at := startServer(t)
	for i, block := range documented(t, language) {
		if !strings.Contains(block, documentedAddress) {
			t.Errorf("block %d in %s does not connect to %s", i+1, language, documentedAddress)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		program := strings.ReplaceAll(block, documentedAddress, at)
		out, err := exec.CommandContext(ctx, command[0], append(command[1:], program)...).CombinedOutput()
		cancel()
		t.Logf("block %d in %s printed:\n%s", i+1, language, out)
		if err != nil || len(out) == 0 {
			t.Errorf("block %d in %s: %v, printed %d bytes", i+1, language, err, len(out))
		}
	}
}

// Goal: the Python clients of docs/protocol.md work as printed. Method: run each
// against a real server.
func TestDocumentedPythonClients(t *testing.T) {
	runDocumented(t, "python", interpreter(t, "import websocket",
		[]string{"python3", "-c"}, []string{"/usr/bin/python3", "-c"}))
}

// Goal: the browser's JavaScript clients of docs/protocol.md work as printed. Method:
// run each against a real server in an interpreter with the browser's WebSocket.
func TestDocumentedJavaScriptClients(t *testing.T) {
	runDocumented(t, "javascript", interpreter(t, "WebSocket.name",
		[]string{"node", "-e"}, []string{"node", "--experimental-websocket", "-e"},
		[]string{"node", "-r", "./testdata/websocket.js", "-e"}))
}
