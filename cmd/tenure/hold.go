package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// killDelay is what a command gets between SIGTERM and SIGKILL.
const killDelay = 5 * time.Second

// hold keeps the session of c open: until ctx ends, the session is over or, if child
// names a command, that command ends.
func (a *app) hold(ctx context.Context, c *conn, path string, child []string) error {
	if err := a.out.Flush(); err != nil {
		return err
	}
	s := c.tree.Held()
	if len(child) == 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Done():
			return sessionOver(c, s)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := a.command(ctx, child[0], child[1:]...)
	cmd.Stdin = a.stdin
	cmd.Env = append(cmd.Env, "TENURE_PATH="+path, "TENURE_SESSION="+s.ID().String())
	if err := cmd.Start(); err != nil {
		return &usageError{err.Error()}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return asChildExit(err)
	case <-s.Done():
		cancel() // sends SIGTERM
		<-ended
		return sessionOver(c, s)
	}
}

// sessionOver says why the session of c ended while it was to be held.
func sessionOver(c *conn, s heldSession) error {
	return &codeError{exitUnreachable, &requestError{c.where, fmt.Errorf("session %v is over: %w", s.ID(), s.Err())}}
}

// command returns a command that gets the tool's environment and output, SIGTERM when
// ctx ends and SIGKILL killDelay later. Flush out before it starts.
func (a *app) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = os.Environ()
	cmd.Stdout, cmd.Stderr = a.stdout, a.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	return cmd
}
