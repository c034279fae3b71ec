package server

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settingValue is one field of a Config as text. set takes a value without blanks
// around it; its error is the rule that the value breaks.
type settingValue interface {
	set(text string) error
	get() string
	isZero() bool
	check() error
}

// rule makes an error of what is allowed.
func rule(format string, args ...any) error { return fmt.Errorf(format, args...) }

type textValue struct {
	field *string
	rule  func(string) error // nil = anything
}

func (v textValue) set(text string) error { *v.field = text; return v.check() }
func (v textValue) get() string           { return *v.field }
func (v textValue) isZero() bool          { return *v.field == "" }
func (v textValue) check() error {
	if v.rule == nil || *v.field == "" {
		return nil
	}
	return v.rule(*v.field)
}

type secretValue struct{ field *Secret }

func (v secretValue) set(text string) error { *v.field = Secret(text); return v.check() }
func (v secretValue) get() string           { return v.field.String() }
func (v secretValue) isZero() bool          { return *v.field == "" }
func (v secretValue) check() error {
	user, digest, found := strings.Cut(v.field.Reveal(), ":")
	if *v.field != "" && (!found || user == "" || digest == "") {
		return rule(`must be "super:" and the base64 of the SHA-1 of "super:password"`)
	}
	return nil
}

type boolValue struct{ field *bool }

func (v boolValue) get() string  { return strconv.FormatBool(*v.field) }
func (v boolValue) isZero() bool { return !*v.field }
func (v boolValue) check() error { return nil }
func (v boolValue) set(text string) error {
	switch strings.ToLower(text) {
	case "true":
		*v.field = true
	case "false":
		*v.field = false
	default:
		return rule("must be true or false")
	}
	return nil
}

// countValue is a whole number in [min, max].
type countValue[T int | int64] struct {
	field    *T
	min, max T
}

func (v countValue[T]) get() string  { return strconv.FormatInt(int64(*v.field), 10) }
func (v countValue[T]) isZero() bool { return *v.field == 0 }
func (v countValue[T]) check() error {
	if *v.field < v.min || *v.field > v.max {
		return rule("must be a whole number from %d to %d", v.min, v.max)
	}
	return nil
}

func (v countValue[T]) set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return rule("must be a whole number from %d to %d", v.min, v.max)
	}
	*v.field = T(n)
	return v.check()
}

// bytesValue is a size in [min, max] bytes.
type bytesValue[T int | int64] struct {
	field    *T
	min, max T
}

func (v bytesValue[T]) get() string  { return formatBytes(int64(*v.field)) }
func (v bytesValue[T]) isZero() bool { return *v.field == 0 }
func (v bytesValue[T]) check() error {
	if *v.field < v.min || *v.field > v.max {
		return rule("must be a size from %s to %s", formatBytes(int64(v.min)), formatBytes(int64(v.max)))
	}
	return nil
}

func (v bytesValue[T]) set(text string) error {
	n, err := parseBytes(text)
	if err != nil {
		return err
	}
	*v.field = T(n)
	return v.check()
}

// durationValue is a time span in [min, max].
type durationValue struct {
	field    *time.Duration
	min, max time.Duration
}

func (v durationValue) get() string  { return formatDuration(*v.field) }
func (v durationValue) isZero() bool { return *v.field == 0 }
func (v durationValue) check() error {
	if *v.field < v.min || *v.field > v.max {
		return rule("must be a duration from %s to %s", formatDuration(v.min), formatDuration(v.max))
	}
	return nil
}

func (v durationValue) set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return rule("must be a number with a unit, as in 500ms, 10s, 5m or 1h")
	}
	*v.field = d
	return v.check()
}

// listValue is values with commas between them; none holds a comma itself. Blank ones are
// passed over.
type listValue struct {
	field *[]string
	rule  func(string) error
}

// strictListValue is a listValue whose blank items are judged by the rule, too.
type strictListValue struct{ listValue }

func (v strictListValue) set(text string) error {
	*v.field = nil
	for item := range strings.SplitSeq(text, ",") {
		*v.field = append(*v.field, strings.TrimSpace(item))
	}
	return v.check()
}

func (v listValue) get() string  { return strings.Join(*v.field, ",") }
func (v listValue) isZero() bool { return len(*v.field) == 0 }
func (v listValue) check() error {
	for _, item := range *v.field {
		if err := v.rule(item); err != nil {
			return err
		}
	}
	return nil
}

func (v listValue) set(text string) error {
	*v.field = nil
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			*v.field = append(*v.field, item)
		}
	}
	return v.check()
}

// oneOf is the rule that a text is one of words.
func oneOf(words ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(words, text) {
			return rule("must be one of %s", strings.Join(words, ", "))
		}
		return nil
	}
}

// isAddress is the rule of listen addresses.
func isAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return rule("must be host:port with a port from 0 to 65535, as in 127.0.0.1:2180 or [::1]:2180")
	}
	return nil
}

// isAddressOrNone is the rule of a door that may stay shut.
func isAddressOrNone(text string) error {
	if text == addressNone {
		return nil
	}
	if err := isAddress(text); err != nil {
		return rule("%w, or %s", err, addressNone)
	}
	return nil
}

// isHost is the rule of one entry of allowed-hosts.
func isHost(text string) error {
	if text == "" || strings.ContainsAny(text, "/ *@") || (strings.Contains(text, ":") && canonicalHost(text) == "") {
		return rule("%q must be a host name or an IP address, without scheme and port", text)
	}
	return nil
}

// isOrigin is the rule of one entry of allowed-origins.
func isOrigin(text string) error {
	if canonicalOrigin(text) == "" {
		return rule("%q must be a scheme (http or https) and a host, perhaps a port, as in https://console.example.com", text)
	}
	return nil
}

// byteUnits is in ascending order per base, so that formatBytes can pick the largest.
var byteUnits = []struct {
	name string
	size int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// parseBytes reads a size: a whole number, with a unit or without (bytes).
func parseBytes(text string) (int64, error) {
	number, size := text, int64(1)
	for _, u := range byteUnits {
		if head, found := strings.CutSuffix(text, u.name); found {
			number, size = strings.TrimSpace(head), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/size {
		return 0, rule("must be a whole number of bytes or one with a unit (KiB, MiB, GiB, TiB, KB, MB, GB, TB), as in 64MiB")
	}
	return n * size, nil
}

// formatBytes is the inverse of parseBytes: exact, with a binary unit if one divides.
func formatBytes(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := byteUnits[i]; n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// formatDuration drops the zero units that time.Duration.String prints: 1h, not 1h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
