package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/znode"
)

const (
	// Bounds of what export reads at once: it is also what it holds in memory.
	exportParallel = 64
	exportBytesMax = 4 << 20
)

// record is one node in an export.
type record struct {
	// Path is relative to the exported node, which itself is "/".
	Path string `json:"path"`
	dataFields
	ACL        []znode.ACL `json:"acl,omitempty"` // none = open to everybody
	modeFields             // none = persistent
}

// listedNode is a node to export, as a list or a Stat has shown it.
type listedNode struct {
	path  string
	czxid int64
	life  znode.Lifetime
}

// exporter writes a subtree as records, a parent before its children. It is used by
// one goroutine, which waits for those that it starts.
type exporter struct {
	app      *app
	tree     exportableTree
	root     string
	document bool
	kindless bool // the server does not tell containers and TTL nodes

	written, ephemerals, hidden int
}

// exportableTree is what export needs of a server; *conn is one.
type exportableTree interface {
	lister
	Get(ctx context.Context, path string) ([]byte, znode.Stat, error)
	GetACL(ctx context.Context, path string) ([]znode.ACL, znode.Stat, error)
	Stat(ctx context.Context, path string) (znode.Stat, znode.Lifetime, error)
}

func newExportCommand(a *app) *cobra.Command {
	e := &exporter{app: a}
	cmd := &cobra.Command{
		Use:   "export PATH",
		Short: "Write a subtree as JSON",
		Long: `Write PATH and everything below it to standard output, one JSON object per line, or
with --document as one JSON array:

  {"path":"/a/b","data":"text","acl":[{"perms":1,"scheme":"world","id":"anyone"}]}

"path" is relative to PATH, which itself is "/". Data that is not text is "base64"; null
data has neither. An access list that is open to everybody is left out. A container has
"mode":"container", a TTL node "mode":"ttl" and "ttl":"5m0s"; its time starts anew with
an import. Ephemeral nodes are skipped, and counted on standard error; /zookeeper, the
server's own, is skipped.

Nodes are read one after the other: what changes meanwhile is exported as it was or as
it is. For one consistent state use 'tenure snapshot save'. If it fails the exit code is
not 0 and what was written is not complete.`,
		Args:              args("PATH", 1, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			e.root = path
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error {
				e.tree, e.kindless = c, c.client == nil
				return e.run(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&e.document, "document", false, "one JSON array instead of lines")
	return cmd
}

func (e *exporter) run(ctx context.Context) error {
	if e.document {
		e.app.out.WriteString("[")
	}
	err := e.all(ctx)
	if err == nil && e.document {
		_, err = e.app.out.WriteString("\n]\n")
	}
	if err == nil {
		err = e.app.out.Flush()
	}
	if err != nil {
		return fmt.Errorf("export %s: not complete, %d nodes were written: %w", e.root, e.written, err)
	}
	e.app.note("exported %d nodes, skipped %d ephemeral ones", e.written, e.ephemerals)
	if e.kindless {
		e.app.note("warning: ZooKeeper does not tell containers and TTL nodes from persistent ones: they are exported as persistent")
	}
	if e.hidden > 0 {
		e.app.note("warning: %d access lists were shown with hidden passwords (digest:user:x); nobody can log in by them after an import; export as an administrator of the nodes", e.hidden)
	}
	return nil
}

// all exports the root and what is below it.
func (e *exporter) all(ctx context.Context) error {
	stat, life, err := e.tree.Stat(ctx, e.root)
	if err != nil {
		return err
	}
	if _, err := e.write(ctx, []listedNode{{e.root, stat.Czxid, life}}, true); err != nil {
		return err
	}
	return e.below(ctx, e.root)
}

// below exports what is below path: all its children, then what is below each.
func (e *exporter) below(ctx context.Context, path string) error {
	var batch []listedNode
	var parents []string
	batchBytes := 0
	flush := func() error {
		gone, err := e.write(ctx, batch, false)
		for _, p := range gone { // what was below a node that vanished did, too
			parents = without(parents, p)
		}
		batch, batchBytes = batch[:0], 0
		return err
	}
	for c, err := range children(ctx, e.tree, path, true) {
		if errors.Is(err, znode.NoNode) && path != e.root {
			break
		}
		if err != nil {
			return err
		}
		if e.root == "/" && path == "/" && c.name == "zookeeper" {
			continue // the server's own
		}
		if c.life.Kind == znode.Ephemeral {
			e.ephemerals++
			continue
		}
		if len(batch) == exportParallel || batchBytes > 0 && batchBytes+int(c.stat.DataLength) > exportBytesMax {
			if err := flush(); err != nil {
				return err
			}
		}
		child := znode.Join(path, c.name)
		batch = append(batch, listedNode{child, c.stat.Czxid, c.life})
		batchBytes += int(c.stat.DataLength)
		if c.stat.NumChildren > 0 {
			parents = append(parents, child)
		}
	}
	if err := flush(); err != nil {
		return err
	}
	for _, p := range parents {
		if err := e.below(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// write reads nodes all at once and writes their records in the same order. It returns
// the paths of those that are gone, which is an error only for the root, or ephemeral.
func (e *exporter) write(ctx context.Context, nodes []listedNode, isRoot bool) (gone []string, err error) {
	records := make([]*record, len(nodes))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(exportParallel)
	for i, node := range nodes {
		group.Go(func() error {
			r, err := e.read(groupCtx, node)
			if errors.Is(err, znode.NoNode) && !isRoot {
				return nil
			}
			records[i] = r
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, r := range records {
		if r == nil {
			gone = append(gone, nodes[i].path)
			continue
		}
		if r.Mode == modeNames[znode.Ephemeral] { // the root, or it became one after it was listed
			e.ephemerals++
			gone = append(gone, nodes[i].path)
			continue
		}
		if err := e.writeRecord(r); err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// read makes the record of one node.
func (e *exporter) read(ctx context.Context, n listedNode) (*record, error) {
	for {
		data, dataStat, err := e.tree.Get(ctx, n.path)
		if err != nil {
			return nil, err
		}
		acl, aclStat, err := e.tree.GetACL(ctx, n.path)
		if err != nil {
			return nil, err
		}
		if dataStat.Czxid != n.czxid || aclStat.Czxid != n.czxid {
			// Deleted and created again meanwhile: these are parts of two nodes.
			stat, life, err := e.tree.Stat(ctx, n.path)
			if err != nil {
				return nil, err
			}
			n.czxid, n.life = stat.Czxid, life
			continue
		}
		r := &record{Path: relativePath(e.root, n.path), dataFields: dataFieldsOf(data)}
		if len(acl) != 1 || acl[0] != znode.OpenACL[0] {
			r.ACL = acl
		}
		if n.life.Kind != znode.Persistent {
			r.modeFields = modeFieldsOf(n.life)
		}
		return r, nil
	}
}

func (e *exporter) writeRecord(r *record) error {
	for _, entry := range r.ACL {
		if entry.Scheme == "digest" && strings.HasSuffix(entry.ID, ":x") {
			e.hidden++
			break
		}
	}
	before, after := "", "\n"
	switch {
	case e.document && e.written == 0:
		before, after = "\n", ""
	case e.document:
		before, after = ",\n", ""
	}
	line, err := jsonLine(r)
	if err != nil {
		return err
	}
	e.written++
	_, err = fmt.Fprintf(e.app.out, "%s%s%s", before, line, after)
	return err
}

// relativePath is the path of path, which is root or below it, in an export of root.
func relativePath(root, path string) string {
	if root == "/" {
		return path
	}
	if path == root {
		return "/"
	}
	return path[len(root):]
}

// absolutePath is the inverse of relativePath.
func absolutePath(root, path string) string {
	switch {
	case root == "/":
		return path
	case path == "/":
		return root
	}
	return root + path
}

// without returns list without s.
func without(list []string, s string) []string {
	kept := list[:0]
	for _, p := range list {
		if p != s {
			kept = append(kept, p)
		}
	}
	return kept
}
