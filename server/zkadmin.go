package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

// access says who may run a command.
type access uint8

const (
	// byWord commands show what a four-letter word shows: they are for everybody exactly
	// if that word is on the white list.
	byWord access = iota
	// byAnybody commands show nothing that /metrics does not.
	byAnybody
	// byAdmin commands change something, or show how the server is set up.
	byAdmin
)

// zkCommand is one command of ZooKeeper's AdminServer.
type zkCommand struct {
	name   string
	short  []string // further names
	access access
	word   string // the four-letter word of the same content
	// always commands are answered also while no requests are served.
	always bool
	// run returns the answer's own fields. nil streams a snapshot instead.
	run func(s *Server, r *http.Request) (jsonObject, error)
}

// zkAdmin answers /commands and what is below it. It is safe for concurrent use.
type zkAdmin struct {
	s     *Server
	admin *admin
}

// handle adds what ZooKeeper's AdminServer and its Prometheus provider have.
func (a *zkAdmin) handle(mux *http.ServeMux) {
	mux.HandleFunc("/commands", a.list)
	mux.HandleFunc("/commands/{$}", a.list)
	mux.HandleFunc("/commands/{name}", a.run)
	mux.Handle("/metrics/zookeeper", a.s.zkMetricsHandler())
}

// commandNamed returns the command of a name or a short name, nil if there is none.
func commandNamed(name string) *zkCommand {
	for i := range zkCommands {
		if c := &zkCommands[i]; c.name == name || slices.Contains(c.short, name) {
			return c
		}
	}
	return nil
}

// list answers /commands: links to all commands.
func (a *zkAdmin) list(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html;charset=utf-8")
	for i := range zkCommands {
		fmt.Fprintf(w, "<a href=\"/commands/%[1]s\">%[1]s</a>\n<br/>\n", zkCommands[i].name)
	}
}

// run answers /commands/{name}. As in ZooKeeper, what went wrong with the command itself
// is in the body of an answer with status 200.
func (a *zkAdmin) run(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	c := commandNamed(name)
	if c == nil {
		answerCommand(w, http.StatusOK, name, nil, "Unknown command: "+name)
		return
	}
	if status := a.judge(c, r); status != http.StatusOK {
		a.admin.refused(w, r, status)
		answerCommand(w, status, c.name, nil, c.whoMay())
		return
	}
	if c.run == nil {
		a.admin.sendSnapshot(w, r)
		return
	}
	if !c.always && a.s.ready() != nil {
		answerCommand(w, http.StatusOK, c.name, nil, notServing)
		return
	}
	body, err := c.run(a.s, r)
	if err != nil {
		answerCommand(w, http.StatusOK, c.name, nil, err.Error())
		return
	}
	answerCommand(w, http.StatusOK, c.name, body, "")
}

// judge returns 200, or the status of a refusal.
func (a *zkAdmin) judge(c *zkCommand, r *http.Request) int {
	if c.access == byAnybody || c.access == byWord && a.s.cfg.allows(c.word) || a.isSuper(r) {
		return http.StatusOK
	}
	return a.admin.judge(r)
}

// whoMay says what a refused caller lacks.
func (c *zkCommand) whoMay() string {
	text := "Auth info is missing or wrong for the command: it takes the admin token (Authorization: Bearer TOKEN) or the super digest (Authorization: digest USER:PASSWORD)"
	if c.access == byWord {
		text += ", or " + c.word + " in the setting zk-words, which opens it to everybody"
	}
	return text
}

// isSuper reports whether a request shows the identity that no access list binds.
func (a *zkAdmin) isSuper(r *http.Request) bool {
	scheme, auth, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if scheme != "digest" {
		return false
	}
	ids, e := znode.Authenticate(scheme, []byte(auth), a.s.cfg.SuperDigest.Reveal())
	return e == znode.OK && znode.AccessSuper.Allowed(nil, ids)
}

// answerCommand answers with the fields that every answer has behind those of its own.
// problem is what went wrong, "" if nothing did.
func answerCommand(w http.ResponseWriter, status int, name string, body jsonObject, problem string) {
	var text any
	if problem != "" {
		text = problem
	}
	body = append(body, jsonField{"command", name}, jsonField{"error", text})
	var b strings.Builder
	appendJSON(&b, body, "")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintln(w, b.String())
}
