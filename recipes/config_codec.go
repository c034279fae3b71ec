package recipes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Codec is the form that values of a Config have in the backend. Its methods may be
// called by several goroutines at once. The same value must encode to the same bytes.
type Codec[T any] interface {
	Encode(T) ([]byte, error)
	// Decode must not keep data.
	Decode(data []byte) (T, error)
}

// JSON is values of any type as JSON. A plain value.
type JSON[T any] struct {
	// Strict refuses fields that T does not have.
	Strict bool
}

// Encode returns v as JSON.
func (c JSON[T]) Encode(v T) ([]byte, error) { return json.Marshal(v) }

// Decode accepts one JSON value with nothing behind it.
func (c JSON[T]) Decode(data []byte) (v T, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if c.Strict {
		d.DisallowUnknownFields()
	}
	var decoded T // v stays zero on error: half a value is none
	if err := d.Decode(&decoded); err != nil {
		return v, fmt.Errorf("not the expected JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("not the expected JSON: more follows the value")
	}
	return decoded, nil
}

// Text is strings as UTF-8. A plain value.
type Text struct{}

// Encode returns the bytes of v, which must be UTF-8.
func (Text) Encode(v string) ([]byte, error) {
	if !utf8.ValidString(v) {
		return nil, errors.New("text is not UTF-8")
	}
	return []byte(v), nil
}

// Decode accepts UTF-8.
func (Text) Decode(data []byte) (string, error) {
	if !utf8.Valid(data) {
		return "", errors.New("text is not UTF-8")
	}
	return string(data), nil
}

// Raw is bytes as they are. A plain value.
type Raw struct{}

// Encode returns a copy of v.
func (Raw) Encode(v []byte) ([]byte, error) { return bytes.Clone(v), nil }

// Decode returns a copy of data.
func (Raw) Decode(data []byte) ([]byte, error) { return bytes.Clone(data), nil }
