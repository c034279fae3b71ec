package server

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what shows instead of a secret.
const redacted = "[redacted]"

// Secret is a string that no log, error or printed value shows: every way of
// formatting it gives the same fixed text. Only Reveal gives the value.
type Secret string

// Reveal returns the secret itself. Never format or log the result.
func (s Secret) Reveal() string { return string(s) }

// String returns a fixed text, or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format hides the value for every verb, also %#v and %x.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value from JSON, YAML and XML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
