package server

import (
	"io"
	"net"
	"time"
)

// isWord reports whether s is one of ZooKeeper's four-letter words.
func isWord(s string) bool { return s == "ruok" }

// answerWord answers a connection that begins with a four-letter word. in is what the
// client sent behind it, out the connection.
func (s *Server) answerWord(c *conn, word string, in io.Reader, out net.Conn) {
	out.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
	io.WriteString(out, "imok")
}
