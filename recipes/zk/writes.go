package zk

import (
	"context"
	"fmt"

	gozk "github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// Create is recipes.Store.Create. ZooKeeper has no sequential containers: they are
// persistent.
func (s *Store) Create(ctx context.Context, path string, data []byte, spec recipes.CreateSpec) (string, error) {
	full, flags, err := s.creation(path, spec)
	if err != nil {
		return "", err
	}
	if err := checkSize("create", path, requestOverhead+len(full)+len(data)+s.aclSize()); err != nil {
		return "", err
	}
	made, err := write(ctx, s, "create", path, func(c *gozk.Conn) (string, error) {
		if spec.Kind == znode.Container && !spec.Sequential {
			made, err := c.CreateContainer(full, data, gozk.FlagContainer, s.acl)
			if err == nil {
				return made, nil
			}
			if code, _ := codeOf(err); code != znode.Unimplemented { // as before 3.5
				return "", err
			}
		}
		return c.Create(full, data, flags, s.acl)
	})
	if err != nil {
		return "", err
	}
	return s.own(made), nil
}

// creation returns the full path of a create and the library's flags for it.
func (s *Store) creation(path string, spec recipes.CreateSpec) (full string, flags int32, err error) {
	if full, err = s.fullName(path, spec.Sequential); err != nil {
		return "", 0, err
	}
	if err := spec.Validate(); err != nil {
		return "", 0, fmt.Errorf("create %s: %w", path, err)
	}
	if spec.Kind == znode.Ephemeral {
		flags = gozk.FlagEphemeral
	}
	if spec.Sequential {
		flags |= gozk.FlagSequence
	}
	return full, flags, nil
}

// Set is recipes.Store.Set.
func (s *Store) Set(ctx context.Context, path string, data []byte, cond recipes.Cond) (znode.Stat, error) {
	full, version, err := s.target("set", path, cond)
	if err != nil {
		return znode.Stat{}, err
	}
	if err := checkSize("set", path, requestOverhead+len(full)+len(data)); err != nil {
		return znode.Stat{}, err
	}
	stat, err := write(ctx, s, "set", path, func(c *gozk.Conn) (*gozk.Stat, error) { return c.Set(full, data, version) })
	if err != nil {
		return znode.Stat{}, err
	}
	return statOf(stat), nil
}

// Delete is recipes.Store.Delete.
func (s *Store) Delete(ctx context.Context, path string, cond recipes.Cond) error {
	full, version, err := s.target("delete", path, cond)
	if err != nil {
		return err
	}
	_, err = write(ctx, s, "delete", path, func(c *gozk.Conn) (struct{}, error) { return struct{}{}, c.Delete(full, version) })
	return err
}

// target returns the full path and the version that an operation is about.
func (s *Store) target(op, path string, cond recipes.Cond) (full string, version int32, err error) {
	if full, err = s.full(op, path); err != nil {
		return "", 0, err
	}
	if version, err = cond.Version(); err != nil {
		return "", 0, fmt.Errorf("%s %s: %w", op, path, err)
	}
	return full, version, nil
}
