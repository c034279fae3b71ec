// Command tenure is the command line tool of Tenure: it reads, changes and watches
// the tree, and looks at the server. One file holds one verb.
package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once, should the orderly end hang.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program: it runs the command line args and returns the exit code.
// The end of ctx stands for an interrupt. Tests call it in their own process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{
		stdin: stdin, stdinIsTerminal: isTerminal(stdin),
		stdout: stdout, out: bufio.NewWriterSize(stdout, 32<<10), outIsTerminal: isTerminal(stdout),
		stderr: stderr, stderrIsTerminal: isTerminal(stderr),
	}
	root := newRootCommand(a)
	root.SetArgs(append([]string{}, args...)) // never nil: cobra would take os.Args
	root.SetIn(stdin)
	root.SetOut(a.out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if flushErr := a.out.Flush(); err == nil {
		err = flushErr
	}
	return a.report(ctx, err)
}
