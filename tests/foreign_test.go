package tests

import (
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

// runDocumented runs every block as printed, but for the address, and wants it to print
// what the text above the blocks says: what it read, then the event.
func runDocumented(t *testing.T, language string, command []string) {
	at := newCLIServer(t).address
	for i, block := range documented(t, language) {
		if !strings.Contains(block, documentedAddress) {
			t.Errorf("block %d in %s does not connect to %s", i+1, language, documentedAddress)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		program := strings.ReplaceAll(block, documentedAddress, at)
		out, err := exec.CommandContext(ctx, command[0], append(command[1:], program)...).CombinedOutput()
		cancel()
		t.Logf("block %d in %s printed:\n%s", i+1, language, out)
		if want := "data: hello\nevent: dataChanged /hello-"; err != nil || !strings.Contains(string(out), want) {
			t.Errorf("block %d in %s: %v, does not print %q", i+1, language, err, want)
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
