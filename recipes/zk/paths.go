package zk

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// full returns a valid path with the chroot before it.
func (s *Store) full(op, path string) (string, error) {
	if err := znode.ValidatePath(path); err != nil {
		return "", fmt.Errorf("%s: %w", op, err)
	}
	return s.below(path), nil
}

// fullName is full for a create: what a sequential one is given is the beginning of a
// path.
func (s *Store) fullName(path string, sequential bool) (string, error) {
	if !sequential {
		return s.full("create", path)
	}
	if err := znode.ValidatePath(path + "0"); err != nil {
		return "", fmt.Errorf("create: %w", err)
	}
	return s.o.Chroot + path, nil
}

func (s *Store) below(path string) string {
	if path == znode.Root && s.o.Chroot != "" {
		return s.o.Chroot
	}
	return s.o.Chroot + path
}

// own returns a path of the server without the chroot.
func (s *Store) own(full string) string {
	if path := strings.TrimPrefix(full, s.o.Chroot); path != "" {
		return path
	}
	return znode.Root
}

// checkSize refuses what the server would answer by closing the connection, for ever.
func checkSize(op, path string, size int) error {
	if size > requestBytesMax {
		return fmt.Errorf("%s %s: %w: request of %d bytes, ZooKeeper takes %d", op, path, recipes.ErrInvalid, size, requestBytesMax)
	}
	return nil
}

// Sizes of a request and of an operation in it, without path and data.
const (
	requestOverhead = 32
	opOverhead      = multiHeaderSize + 16
)

// aclSize is what the access list takes in a create.
func (s *Store) aclSize() int {
	size := 4
	for _, a := range s.acl {
		size += 12 + len(a.Scheme) + len(a.ID)
	}
	return size
}
