package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

// workload is one kind of load.
type workload struct {
	name  string
	what  string   // one line for the help
	parts []string // operations whose latencies are also told apart
	// prepare makes what do needs below r.parent, and sets r.paths.
	prepare func(ctx context.Context, r *row) error
	// do makes one operation and says which part it was.
	do func(ctx context.Context, w *worker) (part int, err error)
	// measure, if set, replaces the loop of the workers.
	measure func(ctx context.Context, r *row) (Run, error)
}

// workloads are all there are. A function, because some of them refer to rows.
func workloads() []workload {
	return []workload{
		{name: "create", what: "create persistent nodes under one parent", parts: []string{"create"}, do: doCreate},
		{name: "set", what: "replace the value of a random node", parts: []string{"set"}, prepare: prepareKeys, do: doSet},
		{name: "get", what: "read the value of a random node", parts: []string{"get"}, prepare: prepareKeys, do: doGet},
		{name: "exists", what: "read the Stat of a random node", parts: []string{"exists"}, prepare: prepareKeys, do: doExists},
		{name: "list", what: "list the children of a node", parts: []string{"list"}, prepare: prepareChildren, do: doList},
		{name: "mixed", what: "get or set a random node", parts: []string{"get", "set"}, prepare: prepareKeys, do: doMixed},
		{name: "churn", what: "create an ephemeral sequential node, delete it; both count", parts: []string{"create", "delete"}, do: doChurn},
		{name: "watch", what: "one write told to many watchers; an operation is one round, its latency until all are told", parts: []string{"all", "each"}, measure: measureFanout},
		{name: "sessions", what: "hold idle sessions, one per connection; an operation is the opening of one", parts: []string{"open"}, measure: measureSessions},
	}
}

// WorkloadHelp lists the workloads, a line each.
func WorkloadHelp() string {
	var b strings.Builder
	for _, w := range workloads() {
		fmt.Fprintf(&b, "  %-9s %s\n", w.name, w.what)
	}
	return b.String()
}

// WorkloadNames returns the names of all workloads.
func WorkloadNames() (names []string) {
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	return names
}

func workloadOf(name string) (workload, error) {
	for _, w := range workloads() {
		if w.name == name {
			return w, nil
		}
	}
	return workload{}, fmt.Errorf("workload %q: want one of %s", name, strings.Join(WorkloadNames(), ", "))
}

// createdPath is the n-th node that a worker creates.
func (w *worker) createdPath(n int64) string {
	return w.row.parent + "/n" + strconv.Itoa(w.id) + "-" + strconv.FormatInt(n, 10)
}

func (w *worker) randomPath() string { return w.row.paths[w.rand.IntN(len(w.row.paths))] }

func doCreate(ctx context.Context, w *worker) (int, error) {
	path := w.createdPath(w.made)
	w.made++ // also if it fails: the outcome may be unknown
	_, err := w.conn.Create(ctx, path, w.row.value, znode.Mode{})
	return 0, err
}

func doSet(ctx context.Context, w *worker) (int, error) {
	return 0, w.conn.Set(ctx, w.randomPath(), w.row.value)
}

func doGet(ctx context.Context, w *worker) (int, error) {
	return 0, w.conn.Get(ctx, w.randomPath())
}

func doExists(ctx context.Context, w *worker) (int, error) {
	return 0, w.conn.Exists(ctx, w.randomPath())
}

func doList(ctx context.Context, w *worker) (int, error) {
	n, err := w.conn.List(ctx, w.row.parent)
	if err == nil && n != len(w.row.paths) && len(w.row.paths) > 0 {
		err = fmt.Errorf("list %s: %d children, want %d", w.row.parent, n, len(w.row.paths))
	}
	return 0, err
}

func doMixed(ctx context.Context, w *worker) (int, error) {
	if w.rand.IntN(100) < w.row.cfg.ReadPercent {
		return 0, w.conn.Get(ctx, w.randomPath())
	}
	return 1, w.conn.Set(ctx, w.randomPath(), w.row.value)
}

// doChurn creates a node and with its next operation deletes it. What is left at the
// end goes with the session.
func doChurn(ctx context.Context, w *worker) (int, error) {
	if w.open != "" {
		path := w.open
		w.open = ""
		return 1, w.conn.Delete(ctx, path)
	}
	path, err := w.conn.Create(ctx, w.row.parent+"/e-", w.row.value, znode.Mode{Kind: znode.Ephemeral, Sequential: true})
	if err == nil {
		w.open = path
	}
	return 0, err
}

func prepareKeys(ctx context.Context, r *row) error     { return r.makeNodes(ctx, r.cfg.Keys) }
func prepareChildren(ctx context.Context, r *row) error { return r.makeNodes(ctx, r.cfg.Children) }

// makeNodes creates n nodes below the parent and puts them into r.paths.
func (r *row) makeNodes(ctx context.Context, n int) error {
	for i := range n {
		r.paths = append(r.paths, fmt.Sprintf("%s/k%08d", r.parent, i))
	}
	return r.spread(ctx, len(r.paths), func(ctx context.Context, c Conn, i int) error {
		_, err := c.Create(ctx, r.paths[i], r.value, znode.Mode{})
		return err
	})
}
