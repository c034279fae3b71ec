package client

import (
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

// full returns path with the chroot before it.
func (c *Client) full(path string) string {
	switch {
	case c.chroot == "":
		return path
	case path == "/":
		return c.chroot
	}
	return c.chroot + path
}

// below returns path without the chroot. A path outside stays as it is.
func (c *Client) below(path string) string {
	if c.chroot == "" {
		return path
	}
	rest, ok := strings.CutPrefix(path, c.chroot)
	switch {
	case !ok || rest != "" && rest[0] != '/':
		return path
	case rest == "":
		return "/"
	}
	return rest
}

// checkedPath returns the full path of a valid one. With a chroot an invalid path could
// name something else, so it must not get so far as the server.
func (c *Client) checkedPath(op, path string) (string, error) {
	if err := znode.ValidatePath(path); err != nil {
		return "", &callError{op: op, why: []error{ErrUnavailable, err}}
	}
	return c.full(path), nil
}

// checkedName is checkedPath for a create, whose path may be a prefix.
func (c *Client) checkedName(op, path string, sequential bool) (string, error) {
	if sequential {
		if err := znode.ValidatePath(path + "0"); err != nil {
			return "", &callError{op: op, why: []error{ErrUnavailable, err}}
		}
		return c.chroot + path, nil
	}
	return c.checkedPath(op, path)
}
