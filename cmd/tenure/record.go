package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// recordMax bounds one record of an import: a node's data as base64, and the rest.
const recordMax = 2 * valueMax

// recordReader reads an export, lines or one document, record by record. It holds one
// record in memory and is used by one goroutine.
type recordReader struct {
	limit    *recordLimit
	decoder  *json.Decoder
	document bool
	count    int // records read, the one that failed included
}

// recordLimit fails when more than recordMax bytes were read for one record.
type recordLimit struct {
	r    io.Reader
	left int
}

// errRecordTooLong is the rule that recordLimit keeps.
var errRecordTooLong = fmt.Errorf("longer than %d bytes", recordMax)

// Read implements io.Reader.
func (l *recordLimit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errRecordTooLong
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// newRecordReader looks at the first character to tell lines from a document.
func newRecordReader(r io.Reader) (*recordReader, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	first, err := skipBlanks(buffered)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("import: read input: %w", err)
	}
	limit := &recordLimit{r: buffered, left: recordMax}
	reader := &recordReader{limit: limit, decoder: json.NewDecoder(limit), document: first == '['}
	reader.decoder.DisallowUnknownFields()
	if reader.document {
		if _, err := reader.decoder.Token(); err != nil {
			return nil, usagef("import: %v", err)
		}
	}
	return reader, nil
}

// skipBlanks skips white space and returns the character behind it without taking it.
func skipBlanks(r *bufio.Reader) (byte, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c, r.UnreadByte()
		}
	}
}

// next returns the next record, and io.EOF behind the last. What is wrong with the
// input is a usage error that names the record by its number.
func (r *recordReader) next() (*record, error) {
	if r.document && !r.decoder.More() {
		if _, err := r.decoder.Token(); err != nil {
			return nil, r.wrong(err)
		}
		if _, err := r.decoder.Token(); err != io.EOF {
			return nil, usagef("import: there is more behind the closing ]")
		}
		return nil, io.EOF
	}
	r.limit.left = recordMax
	r.count++
	var decoded record
	err := r.decoder.Decode(&decoded)
	if err == io.EOF && !r.document {
		return nil, io.EOF
	}
	if err != nil {
		return nil, r.wrong(err)
	}
	return &decoded, nil
}

// wrong says which record could not be read.
func (r *recordReader) wrong(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return usagef("import: the input ends in record %d: it is not complete", r.count)
	}
	return usagef("import: record %d: %v", r.count, err)
}
