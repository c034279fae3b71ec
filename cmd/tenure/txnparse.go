package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

const (
	// txnLineMax bounds one line of a transaction: the data of a node, escaped.
	txnLineMax = 2 * valueMax
	// txnOpsMax and txnBytesMax bound a transaction; a server takes less.
	txnOpsMax   = 100_000
	txnBytesMax = 2 * valueMax
)

// txnLine is one operation and the line that it stands on.
type txnLine struct {
	number int
	op     znode.Op
}

// parseTxn reads operations as the help of txn describes them. Errors are usage
// errors that name the line and the rule.
func parseTxn(r io.Reader) ([]txnLine, error) {
	var lines []txnLine
	scanner := bufio.NewScanner(io.LimitReader(r, txnBytesMax+1))
	scanner.Buffer(make([]byte, 0, 64<<10), txnLineMax)
	number, total := 0, 0
	for scanner.Scan() {
		number++
		total += len(scanner.Bytes()) + 1
		text := strings.TrimSpace(scanner.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		op, err := parseTxnOp(text)
		if err != nil {
			return nil, usagef("txn: line %d: %v", number, err)
		}
		if lines = append(lines, txnLine{number, op}); len(lines) > txnOpsMax {
			return nil, usagef("txn: line %d: more than %d operations", number, txnOpsMax)
		}
	}
	err := scanner.Err()
	if total > txnBytesMax || errors.Is(err, bufio.ErrTooLong) {
		return nil, usagef("txn: line %d: more than %d bytes of input", number, txnBytesMax)
	}
	if err != nil {
		return nil, fmt.Errorf("txn: read input: %w", err)
	}
	return lines, nil
}

// parseTxnOp reads one line that is neither empty nor a comment.
func parseTxnOp(text string) (znode.Op, error) {
	var (
		op  znode.Op
		err error
	)
	if text[0] == '{' {
		op, err = parseTxnJSON(text)
	} else {
		var words []string
		if words, err = splitWords(text); err == nil {
			op, err = parseTxnWords(words)
		}
	}
	if err != nil {
		return nil, err
	}
	_, path := describeOp(op)
	if create, ok := op.(*znode.Create); ok && create.Mode.Sequential {
		path += "0" // is valid if it is with its counter
	}
	return op, znode.ValidatePath(path)
}

// parseTxnWords reads an operation from its words.
func parseTxnWords(words []string) (znode.Op, error) {
	name, rest := words[0], words[1:]
	switch name {
	case "check":
		if len(rest) != 2 {
			return nil, errors.New("want check PATH VERSION")
		}
		version, err := parseVersion(rest, 1)
		return &znode.Check{Path: rest[0], Version: version}, err
	case "create":
		return parseTxnCreate(rest)
	case "set":
		if len(rest) < 2 || len(rest) > 3 {
			return nil, errors.New("want set PATH DATA [VERSION]")
		}
		version, err := parseVersion(rest, 2)
		return &znode.SetData{Path: rest[0], Data: []byte(rest[1]), Version: version}, err
	case "delete":
		if len(rest) < 1 || len(rest) > 2 {
			return nil, errors.New("want delete PATH [VERSION]")
		}
		version, err := parseVersion(rest, 1)
		return &znode.Delete{Path: rest[0], Version: version}, err
	}
	return nil, fmt.Errorf("unknown operation %q: want check, create, set or delete", name)
}

// parseTxnCreate reads the words behind "create".
func parseTxnCreate(words []string) (znode.Op, error) {
	op := &znode.Create{ACL: znode.OpenACL, WantStat: true}
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		for _, flag := range words[0][1:] {
			switch flag {
			case 'e':
				op.Mode.Kind = znode.Ephemeral
			case 's':
				op.Mode.Sequential = true
			default:
				return nil, fmt.Errorf("unknown flag -%c: want -e or -s", flag)
			}
		}
		words = words[1:]
	}
	if len(words) < 1 || len(words) > 2 {
		return nil, errors.New("want create [-e] [-s] PATH [DATA]")
	}
	op.Path = words[0]
	if len(words) == 2 {
		op.Data = []byte(words[1])
	}
	return op, nil
}

// parseVersion reads the version at index i of words, -1 if there is none.
func parseVersion(words []string, i int) (int32, error) {
	if i >= len(words) {
		return -1, nil
	}
	n, err := strconv.ParseInt(words[i], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("version %q: want a number of 32 bits", words[i])
	}
	return int32(n), nil
}

// splitWords cuts a line into words by the rules in the help of txn. A quoted part
// must be a whole word.
func splitWords(line string) ([]string, error) {
	var words []string
	for rest := strings.TrimLeft(line, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		var word, after string
		switch rest[0] {
		case '"':
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, fmt.Errorf("word %q: a closing \" is missing, or an escape is not one of Go's", rest)
			}
			word, err = strconv.Unquote(quoted)
			if err != nil {
				return nil, fmt.Errorf("word %s: %v", quoted, err)
			}
			after = rest[len(quoted):]
		case '\'':
			var closed bool
			if word, after, closed = strings.Cut(rest[1:], "'"); !closed {
				return nil, fmt.Errorf("word %q: a closing ' is missing", rest)
			}
		default:
			end := strings.IndexAny(rest, " \t")
			if end < 0 {
				end = len(rest)
			}
			word, after = rest[:end], rest[end:]
		}
		if after != "" && after[0] != ' ' && after[0] != '\t' {
			return nil, fmt.Errorf("%q: a blank is missing behind a closing quote", after)
		}
		words = append(words, word)
		rest = after
	}
	return words, nil
}

// txnFields are the fields of an operation in JSON.
type txnFields struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	dataFields
	Version    *int32      `json:"version"`
	Mode       string      `json:"mode"`
	Sequential bool        `json:"sequential"`
	TTL        string      `json:"ttl"`
	ACL        []znode.ACL `json:"acl"`
}

// parseTxnJSON reads an operation from a JSON object; fields that it does not know
// are refused.
func parseTxnJSON(text string) (znode.Op, error) {
	var f txnFields
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("there is more behind the JSON object")
	}
	data, err := f.bytes()
	if err != nil {
		return nil, err
	}
	version := int32(-1)
	if f.Version != nil {
		version = *f.Version
	}
	switch f.Op {
	case "check":
		if f.Version == nil {
			return nil, errors.New(`check needs a "version"`)
		}
		return &znode.Check{Path: f.Path, Version: version}, nil
	case "set":
		return &znode.SetData{Path: f.Path, Data: data, Version: version}, nil
	case "delete":
		return &znode.Delete{Path: f.Path, Version: version}, nil
	case "create":
		op := &znode.Create{Path: f.Path, Data: data, ACL: f.ACL, WantStat: true}
		if f.ACL == nil {
			op.ACL = znode.OpenACL
		}
		op.Mode.Sequential = f.Sequential
		op.Mode.Kind, op.TTLMs, err = parseKind(f.Mode, f.TTL)
		return op, err
	}
	return nil, fmt.Errorf("op %q: want check, create, set or delete", f.Op)
}
