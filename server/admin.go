package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/store"
)

// BuildInfo says what is running.
type BuildInfo struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`
	Time     string   `json:"time"` // of the commit, as in RFC 3339; "" if unknown
	Go       string   `json:"go"`
	Protocol []string `json:"protocol"` // websocket subprotocols
}

// Version is the released version. The linker sets it (-X) for releases.
var Version = "0.1.0-dev"

// Build returns what is running: Version, and what the Go toolchain noted.
func Build() BuildInfo {
	b := BuildInfo{Version: Version, Commit: "unknown", Go: runtime.Version(),
		Protocol: []string{"tenure.v1.jute", "tenure.v1.json"}}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Time = s.Value
			}
		}
	}
	return b
}

// adminBackend is what the HTTP endpoints need of the server. Its methods are safe for
// concurrent use.
type adminBackend interface {
	// healthy returns nil, or what has stopped the replica for good.
	healthy() error
	// ready returns nil, or why requests cannot be served now.
	ready() error
	// writeSnapshot writes a consistent snapshot of the state to w.
	writeSnapshot(w io.Writer) (store.SnapshotInfo, error)
}

// admin serves everything on HTTP besides websocket. It is safe for concurrent use.
type admin struct {
	backend      adminBackend
	token        adminToken
	log          *slog.Logger
	writeTimeout time.Duration
	snapshotting atomic.Bool // one at a time: it reads the whole state
	// zooKeeper, if set, adds what ZooKeeper's own HTTP servers have.
	zooKeeper func(*http.ServeMux)
	// status, if set, answers /v1/status.
	status http.HandlerFunc
}

// httpHandler routes the listener: websocket at /v1/ws, the rest to admin and metrics.
// Host, Origin and method are judged here, for all of them at once.
func (a *admin) httpHandler(c *Config, m *metrics, websocket http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/ws", websocket)
	mux.Handle("/metrics", m.handler())
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answerState(w, a.backend.healthy()) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { answerState(w, a.backend.ready()) })
	mux.HandleFunc("/version", answerVersion)
	mux.HandleFunc("/v1/snapshot", a.snapshot)
	mux.HandleFunc("/{$}", answerRoot)
	if a.status != nil {
		mux.HandleFunc("/v1/status", a.status)
	}
	if a.zooKeeper != nil {
		a.zooKeeper(mux)
	}
	return newOriginPolicy(c).wrap(readOnly(mux))
}

// newHTTPServer bounds what a stranger can make a connection cost before it is a
// websocket.
func newHTTPServer(h http.Handler, c *Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: c.HandshakeTimeout,
		ReadTimeout:       c.HandshakeTimeout, // no endpoint has a request body; hijacking lifts it
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// readOnly refuses every method but GET and HEAD: nothing here changes state, so no
// other method has a meaning.
func readOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, fmt.Sprintf("method %s is not allowed; GET and HEAD are", r.Method), http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// answerState answers a probe: 200 ok, or 503 and why.
func answerState(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

func answerVersion(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Build())
}

func answerRoot(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, `Tenure %s, a coordination service.

/v1/ws        websocket, subprotocols %s
/healthz      200 while the process can work
/readyz       200 while requests are served
/v1/status    all members of the ensemble and how each is doing, as JSON
/metrics      figures for Prometheus
/metrics/zookeeper  those that ZooKeeper has, under its names
/commands     ZooKeeper's admin commands
/version      what is running
/v1/snapshot  a snapshot of the state; needs "Authorization: Bearer TOKEN" with the
              token in the file admin.token of the data directory
`, Version, strings.Join(Build().Protocol, " and "))
}

// judge checks the admin token: 200, or the status of a refusal. Nothing else counts: no
// address, no forwarded header, no cookie.
func (a *admin) judge(r *http.Request) int {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := strings.EqualFold(scheme, "Bearer") && len(r.Header.Values("Authorization")) == 1
	switch {
	case !given:
		return http.StatusUnauthorized
	case !a.token.ok(strings.TrimSpace(token)):
		return http.StatusForbidden
	}
	return http.StatusOK
}

// refused notes a refusal; the caller answers it.
func (a *admin) refused(w http.ResponseWriter, r *http.Request, status int) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tenure"`)
	}
	a.log.Warn("admin request refused", "path", r.URL.Path, "remote", r.RemoteAddr, "status", status)
}

// Trailers that name what a complete snapshot holds. The stream itself carries
// checksums; a stream that breaks off is also an unfinished chunked body.
const (
	trailerZxid   = "Tenure-Snapshot-Zxid"
	trailerDigest = "Tenure-Snapshot-Digest"
)

func (a *admin) snapshot(w http.ResponseWriter, r *http.Request) {
	if status := a.judge(r); status != http.StatusOK {
		a.refused(w, r, status)
		http.Error(w, "this needs the admin token, in the file admin.token of the data directory, as Authorization: Bearer TOKEN", status)
		return
	}
	a.sendSnapshot(w, r)
}

// sendSnapshot answers one who may have a snapshot.
func (a *admin) sendSnapshot(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="tenure.snapshot"`)
	if r.Method == http.MethodHead {
		return
	}
	if !a.snapshotting.CompareAndSwap(false, true) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "another snapshot is being taken", http.StatusServiceUnavailable)
		return
	}
	defer a.snapshotting.Store(false)
	w.Header().Set("Trailer", trailerZxid+", "+trailerDigest)
	began := time.Now()
	out := &deadlineWriter{w: w, control: http.NewResponseController(w), timeout: a.writeTimeout}
	info, err := a.backend.writeSnapshot(out)
	if err != nil {
		a.log.Error("snapshot failed", "remote", r.RemoteAddr, "bytes", out.n, "error", err)
		if out.n == 0 && !errors.Is(err, errClientWrite) {
			w.Header().Del("Trailer")
			http.Error(w, "snapshot: "+err.Error(), http.StatusInternalServerError)
			return
		}
		panic(http.ErrAbortHandler) // the client sees an unfinished body, not a short one
	}
	w.Header().Set(trailerZxid, fmt.Sprintf("0x%x", info.Zxid))
	w.Header().Set(trailerDigest, fmt.Sprintf("%016x", info.Digest))
	a.log.Info("snapshot sent", "remote", r.RemoteAddr, "zxid", fmt.Sprintf("0x%x", info.Zxid),
		"bytes", out.n, "ms", time.Since(began).Milliseconds())
}

var errClientWrite = errors.New("client does not read")

// deadlineWriter bounds each write, not the whole: a large snapshot may take long, but
// a client that stops reading may not hold it open.
type deadlineWriter struct {
	w       io.Writer
	control *http.ResponseController
	timeout time.Duration
	n       int64
}

func (d *deadlineWriter) Write(p []byte) (int, error) {
	if err := d.control.SetWriteDeadline(time.Now().Add(d.timeout)); err != nil {
		return 0, err
	}
	n, err := d.w.Write(p)
	d.n += int64(n)
	if err != nil {
		err = fmt.Errorf("%w: %w", errClientWrite, err)
	}
	return n, err
}
