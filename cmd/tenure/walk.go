package main

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// lister lists one page of children; *conn is one.
type lister interface {
	List(ctx context.Context, path string, p wire.List) (wire.ListReply, error)
}

// child is one child of a listing.
type child struct {
	name string
	stat znode.Stat
	life znode.Lifetime
	last bool // of its parent
}

// children yields the children of path in ascending order, page by page, so that
// any number of them needs the memory of one page. Children that come or go between
// two pages may or may not be seen. stats asks for their Stats and Lifetimes.
func children(ctx context.Context, l lister, path string, stats bool) iter.Seq2[child, error] {
	return func(yield func(child, error) bool) {
		after := ""
		for {
			page, err := l.List(ctx, path, wire.List{Path: path, After: after, Limit: pageSize, Stats: stats})
			if err != nil {
				yield(child{}, err)
				return
			}
			for i, name := range page.Names {
				c := child{name: name, last: !page.More && i == len(page.Names)-1}
				if stats && i < len(page.Stats) && i < len(page.Lifetimes) {
					c.stat, c.life = page.Stats[i], page.Lifetimes[i]
				}
				if !yield(c, nil) {
					return
				}
			}
			if !page.More || len(page.Names) == 0 {
				return
			}
			after = page.Names[len(page.Names)-1]
		}
	}
}

// walker visits the nodes below a path, each before its own children.
type walker struct {
	lister lister
	// visit is called once per node; depth is 1 for the children of the start.
	visit func(path string, c child, depth int) error
	// depth limits how deep to go, 0 = no limit.
	depth int
	// denied is called for a node whose children may not be read; nil = the walk fails.
	denied func(path string, err error)
}

// walk visits what is below path, which must exist. Nodes that vanish meanwhile are
// left out.
func (w *walker) walk(ctx context.Context, path string) error { return w.below(ctx, path, 1) }

func (w *walker) below(ctx context.Context, path string, depth int) error {
	for c, err := range children(ctx, w.lister, path, true) {
		switch {
		case err == nil:
		case depth > 1 && errors.Is(err, znode.NoNode):
			return nil
		case depth > 1 && errors.Is(err, znode.NoAuth) && w.denied != nil:
			w.denied(path, err)
			return nil
		default:
			return err
		}
		below := znode.Join(path, c.name)
		if err := w.visit(below, c, depth); err != nil {
			return err
		}
		if c.stat.NumChildren == 0 || depth == w.depth {
			continue
		}
		if err := w.below(ctx, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// parsePath checks the path in an argument by the rules of znode.ValidatePath. A slash
// behind the last name, as a shell's completion leaves it, is dropped.
func parsePath(s string) (string, error) {
	if len(s) > 1 {
		s = strings.TrimSuffix(s, "/")
	}
	if err := znode.ValidatePath(s); err != nil {
		return "", &usageError{err.Error()}
	}
	return s, nil
}

// pathArg returns the path at index i of args, "/" if there is none.
func pathArg(args []string, i int) (string, error) {
	if i >= len(args) {
		return "/", nil
	}
	return parsePath(args[i])
}
