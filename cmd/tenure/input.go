package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	// valueMax bounds the data of one znode that is read from a file or standard
	// input. The server's own limit is lower unless it was raised.
	valueMax = 16 << 20
	// secretMax bounds a token file.
	secretMax = 4 << 10
)

// readMax reads all of r and refuses more than max bytes; what names r in the error.
func readMax(r io.Reader, max int64, what string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if int64(len(data)) > max {
		return nil, usagef("%s: more than %d bytes, the limit for this input", what, max)
	}
	return data, nil
}

// readFileMax reads the file name, of max bytes at most.
func readFileMax(name string, max int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &usageError{err.Error()}
	}
	defer f.Close()
	return readMax(f, max, name)
}

// value returns the data that an argument stands for: "-" is standard input, @FILE
// the content of FILE, @@text is "@text", and anything else is itself.
func (a *app) value(ctx context.Context, arg string) ([]byte, error) {
	switch {
	case arg == "-":
		return readMax(a.input(ctx), valueMax, "standard input")
	case strings.HasPrefix(arg, "@@"):
		return []byte(arg[1:]), nil
	case strings.HasPrefix(arg, "@"):
		return readFileMax(arg[1:], valueMax)
	}
	return []byte(arg), nil
}

// input returns standard input as a reader that an interrupt ends.
func (a *app) input(ctx context.Context) io.Reader {
	return &interruptible{ctx: ctx, r: a.stdin, done: make(chan readResult, 1)}
}

// openInput opens the file name, or standard input if name is "-" or empty.
func (a *app) openInput(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == "" || name == "-" {
		return io.NopCloser(a.input(ctx)), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, &usageError{err.Error()}
	}
	return f, nil
}

// interruptible reads r until ctx ends. A read of a terminal or a pipe cannot be
// called back, so one read may be left waiting when ctx ends; it ends with the
// process, and its bytes are lost. It is used by one goroutine.
type interruptible struct {
	ctx  context.Context
	r    io.Reader
	buf  []byte // what the last read brought and nobody took yet
	read [32 << 10]byte
	done chan readResult // capacity 1: the read never waits for us
}

type readResult struct {
	n   int
	err error
}

// Read implements io.Reader.
func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	if len(i.buf) == 0 {
		go func() {
			n, err := i.r.Read(i.read[:])
			i.done <- readResult{n, err}
		}()
		select {
		case <-i.ctx.Done():
			return 0, i.ctx.Err()
		case result := <-i.done:
			if result.err != nil && result.n == 0 {
				return 0, result.err
			}
			i.buf = i.read[:result.n] // an error comes again at the next read
		}
	}
	n := copy(p, i.buf)
	i.buf = i.buf[n:]
	return n, nil
}

// confirm asks a yes or no question where standard input is a terminal; elsewhere,
// and with yes, it agrees.
func (a *app) confirm(ctx context.Context, yes bool, format string, args ...any) (bool, error) {
	if yes || !a.stdinIsTerminal {
		return true, nil
	}
	if err := a.out.Flush(); err != nil {
		return false, err
	}
	fmt.Fprintf(a.stderr, "%s [y/N] ", oneLine(fmt.Sprintf(format, args...)))
	line, err := bufio.NewReader(io.LimitReader(a.input(ctx), 100)).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
