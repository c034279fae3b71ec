package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// zkWord is one of ZooKeeper's four-letter words.
type zkWord struct {
	name string
	// open words are on the white list by default: they name no client and no znode, cost
	// the same however much the server holds, and change nothing.
	open bool
	// always words are answered by whoever lives; the others only by who serves requests.
	always bool
	// answer appends the answer to b. in is what the client sent behind the word.
	answer func(s *Server, b *bytes.Buffer, in io.Reader)
}

// zkWords are all of them.
var zkWords = []zkWord{
	{"conf", true, false, (*Server).wordConf},
	{"cons", false, false, (*Server).wordCons},
	{"crst", false, false, func(s *Server, b *bytes.Buffer, _ io.Reader) {
		s.resetConns()
		b.WriteString("Connection stats reset.\n")
	}},
	{"dirs", true, false, (*Server).wordDirs},
	{"dump", false, false, (*Server).wordDump},
	{"envi", true, true, (*Server).wordEnvi},
	{"gtmk", true, true, (*Server).wordGtmk},
	{"hash", true, false, (*Server).wordHash},
	{"isro", true, true, (*Server).wordIsro},
	{"mntr", true, false, (*Server).wordMntr},
	{"ruok", true, true, func(_ *Server, b *bytes.Buffer, _ io.Reader) { b.WriteString("imok") }},
	{"srst", false, false, func(s *Server, b *bytes.Buffer, _ io.Reader) {
		s.resetTraffic()
		b.WriteString("Server stats reset.\n")
	}},
	{"srvr", true, false, func(s *Server, b *bytes.Buffer, _ io.Reader) {
		b.WriteString(versionLine())
		s.writeStats(b)
	}},
	{"stat", false, false, (*Server).wordStat},
	{"stmk", false, true, (*Server).wordStmk},
	{"wchc", false, false, (*Server).wordWchc},
	{"wchp", false, false, (*Server).wordWchp},
	{"wchs", true, false, (*Server).wordWchs},
}

// wordNamed returns the row of a word, nil if there is none.
func wordNamed(name string) *zkWord {
	for i := range zkWords {
		if zkWords[i].name == name {
			return &zkWords[i]
		}
	}
	return nil
}

// isWord reports whether s is one of ZooKeeper's four-letter words.
func isWord(s string) bool { return wordNamed(s) != nil }

// openWords is the default of the white list, as text.
func openWords() string {
	var names []string
	for i := range zkWords {
		if zkWords[i].open {
			names = append(names, zkWords[i].name)
		}
	}
	return strings.Join(names, ",")
}

// allWords on a white list stands for all words.
const allWords = "*"

// isListableWord is the rule of one entry of zk-words.
func isListableWord(text string) error {
	if text != allWords && !isWord(text) {
		return rule("%q must be a four-letter word of ZooKeeper, as ruok, or %s for all", text, allWords)
	}
	return nil
}

// allows reports whether a word is on the white list.
func (c *Config) allows(word string) bool {
	return slices.Contains(c.ZKWords, word) || slices.Contains(c.ZKWords, allWords)
}

// Answers of ZooKeeper that its tools look for.
const (
	notListed  = " is not executed because it is not in the whitelist.\n"
	notServing = "This ZooKeeper instance is not currently serving requests"
)

// answerWord answers a connection that begins with a four-letter word. in is what the
// client sent behind it, out the connection.
func (s *Server) answerWord(c *conn, word string, in io.Reader, out net.Conn) {
	c.countReceived(len(word))
	var b bytes.Buffer
	switch w := wordNamed(word); {
	case !s.cfg.allows(word):
		// Tools look for the first line, operators for the second.
		b.WriteString(word + notListed + "The setting zk-words can add it.\n")
	case !w.always && s.ready() != nil:
		b.WriteString(notServing + "\n")
	default:
		w.answer(s, &b, in)
	}
	if out.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout)) == nil {
		out.Write(b.Bytes()) // a client that is gone needs no answer
		s.traffic.sent.Add(1)
	}
}

// wordIsro says that all may write, or that nobody is served.
func (s *Server) wordIsro(b *bytes.Buffer, _ io.Reader) {
	if s.ready() != nil {
		b.WriteString("null")
		return
	}
	b.WriteString("rw")
}

// traceMaskDefault is what ZooKeeper traces unless told otherwise. Here nothing is traced
// by it: the mask is kept for those who set it.
const traceMaskDefault = 306

func (s *Server) wordGtmk(b *bytes.Buffer, _ io.Reader) { b.WriteString(itoa(s.traceMask.Load())) }

// wordStmk sets the mask to the 8 bytes behind the word.
func (s *Server) wordStmk(b *bytes.Buffer, in io.Reader) {
	var mask [8]byte
	if _, err := io.ReadFull(in, mask[:]); err != nil {
		return // nobody is there to be told
	}
	s.traceMask.Store(int64(binary.BigEndian.Uint64(mask[:])))
	s.wordGtmk(b, nil)
}
