package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

const configPath = "/cfg/app/key"

// newConfig makes a Config of text that does not take the word bad.
func newConfig(t *testing.T, s recipes.Store, history int) *recipes.Config[string] {
	t.Helper()
	c, err := recipes.NewConfig(s, configPath, recipes.Text{}, recipes.ConfigOptions[string]{
		History: history,
		Validate: func(v string) error {
			if v == "bad" {
				return errors.New("bad is not good")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func setConfig(t *testing.T, c *recipes.Config[string], v string) recipes.Value[string] {
	t.Helper()
	got, err := c.Set(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// valueText is a value in short: - for none, ! if it is bad, ? if it is not fresh.
func valueText(v recipes.Value[string]) string {
	s := v.V
	if !v.Exists {
		s += "-"
	}
	if v.Err != nil {
		s += "!"
	}
	if !v.Fresh {
		s += "?"
	}
	return s
}

// valueLog is all that a stream of values has yielded.
type valueLog struct {
	mu     sync.Mutex
	values []recipes.Value[string]
}

// watchConfig logs the values of c until the test ends.
func watchConfig(t *testing.T, c *recipes.Config[string]) *valueLog {
	l := &valueLog{}
	go func() {
		for v, err := range c.Watch(t.Context()) {
			if err != nil {
				return
			}
			l.mu.Lock()
			l.values = append(l.values, v)
			l.mu.Unlock()
		}
	}()
	return l
}

// want fails unless the values since the last call are these.
func (l *valueLog) want(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var got []string
	for _, v := range l.values {
		got = append(got, valueText(v))
	}
	l.values = nil
	if !slices.Equal(got, want) {
		t.Fatalf("values %q, want %q", got, want)
	}
}

// Goal: a bad option is refused with its rule. Method: one each.
func TestConfigOptions(t *testing.T) {
	for name, test := range map[string]struct {
		path  string
		codec recipes.Codec[string]
		o     recipes.ConfigOptions[string]
	}{
		"path":    {"x", recipes.Text{}, recipes.ConfigOptions[string]{}},
		"root":    {"/", recipes.Text{}, recipes.ConfigOptions[string]{}},
		"codec":   {"/x", nil, recipes.ConfigOptions[string]{}},
		"history": {"/x", recipes.Text{}, recipes.ConfigOptions[string]{History: -1}},
		"much":    {"/x", recipes.Text{}, recipes.ConfigOptions[string]{History: 1001}},
	} {
		if _, err := recipes.NewConfig(nil, test.path, test.codec, test.o); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Goal: the codecs take what they promise and nothing else. Method: a table of bytes.
func TestConfigCodecs(t *testing.T) {
	type conf struct{ A int }
	for _, test := range []struct {
		data   string
		strict bool
		ok     bool
	}{
		{`{"A":1}`, false, true}, {` {"A":1} `, true, true}, {`{"A":1,"B":2}`, false, true},
		{`{"A":1,"B":2}`, true, false}, {`{"A":1}{}`, false, false}, {`{"A":1} x`, false, false},
		{`{"A":"1"}`, false, false}, {``, false, false}, {`{"A":1`, false, false},
	} {
		v, err := recipes.JSON[conf]{Strict: test.strict}.Decode([]byte(test.data))
		if test.ok != (err == nil) || test.ok != (v.A == 1) {
			t.Errorf("%q, strict %v: %+v, %v", test.data, test.strict, v, err)
		}
	}
	if data, err := (recipes.JSON[conf]{}).Encode(conf{2}); err != nil || string(data) != `{"A":2}` {
		t.Errorf("%s, %v", data, err)
	}
	if _, err := (recipes.JSON[func()]{}).Encode(nil); err == nil {
		t.Error("a function was encoded")
	}
	_, encodeErr := recipes.Text{}.Encode("\xff")
	_, decodeErr := recipes.Text{}.Decode([]byte("\xff"))
	if encodeErr == nil || decodeErr == nil {
		t.Error("text that is not UTF-8 was taken")
	}
	data := []byte("\x00\xff")
	raw, err := recipes.Raw{}.Decode(data)
	data[0] = 1
	if err != nil || string(raw) != "\x00\xff" {
		t.Errorf("raw %q, %v", raw, err)
	}
}

// Goal: one bad value does not end the stream, and the last good one stays. Method:
// garbage of two kinds, then good; a Config refuses to write what is bad.
func TestP95BadValue(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		c := newConfig(t, s, 0)
		log := watchConfig(t, c)
		setConfig(t, c, "good")
		settle(time.Second)
		log.want(t, "-", "good")
		for _, garbage := range []string{"bad", "\xff"} {
			if _, err := s.Set(t.Context(), configPath, []byte(garbage), recipes.Always()); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			log.want(t, "good!")
		}
		if v, err := c.Get(t.Context()); err != nil || valueText(v) != "good!" {
			t.Errorf("get: %s, %v", valueText(v), err)
		}
		if _, err := c.Update(t.Context(), func(s string) (string, error) { return s + "x", nil }); err == nil || errors.Is(err, recipes.ErrConflict) {
			t.Errorf("update of a bad value: %v", err)
		}
		if _, err := c.Set(t.Context(), "bad"); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("set of a bad value: %v", err)
		}
		setConfig(t, c, "fine")
		settle(time.Second)
		log.want(t, "fine")
	})
}

// Goal: a stream whose loop is left keeps nothing, one whose ctx ends is silent, and one
// whose store is closed says so. Method: each, with the watches counted.
func TestConfigWatchEnds(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		c := newConfig(t, s, 0)
		for range 100 {
			for range c.Watch(t.Context()) {
				break
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for v, err := range c.Watch(ctx) {
			if err != nil {
				t.Errorf("%s, %v", valueText(v), err)
			}
		}
		if n := f.Watches(); n > 0 {
			t.Errorf("%d watches", n)
		}
		var last error
		for _, err := range c.Watch(t.Context()) {
			if err == nil {
				go s.Close()
			}
			last = err
		}
		if !errors.Is(last, recipes.ErrSessionClosed) {
			t.Errorf("stream of a closed store: %v", last)
		}
	})
}

// Goal: CompareAndSet writes over what was read and nothing else. Method: a table of what
// is there and what was read, on version 0 too.
func TestConfigCompareAndSet(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		c := newConfig(t, s, 0)
		none, err := c.Get(t.Context())
		if err != nil || none.Exists {
			t.Fatalf("%+v, %v", none, err)
		}
		first, err := c.CompareAndSet(t.Context(), none, "one")
		if err != nil || first.V != "one" || first.Stat.Version != 0 {
			t.Fatalf("%+v, %v", first, err)
		}
		if _, err := c.CompareAndSet(t.Context(), none, "two"); !errors.Is(err, recipes.ErrConflict) {
			t.Errorf("on none though there is one: %v", err)
		}
		second, err := c.CompareAndSet(t.Context(), first, "two")
		if err != nil || second.Stat.Version != 1 || second.Stat.Czxid != first.Stat.Czxid {
			t.Fatalf("%+v, %v", second, err)
		}
		if _, err := c.CompareAndSet(t.Context(), first, "three"); !errors.Is(err, recipes.ErrConflict) {
			t.Errorf("on version 0 though it is 1: %v", err)
		}
		got, err := c.Get(t.Context())
		if err != nil || got != second {
			t.Errorf("%+v, %v; want %+v", got, err, second)
		}
	})
}

// Goal: concurrent updates are all applied, once. Method: eight writers count to 25 each,
// with and without history, and an update that changes nothing.
func TestConfigUpdateCounts(t *testing.T) {
	for _, history := range []int{0, 3} {
		flavours(t, func(t *testing.T, f *recipestest.Fake) {
			var writers sync.WaitGroup
			for range 8 {
				c := newConfig(t, f.Open(t).Store, history)
				writers.Go(func() {
					for range 25 {
						if _, err := c.Update(t.Context(), increment); err != nil {
							t.Error(err)
						}
					}
				})
			}
			writers.Wait()
			c := newConfig(t, f.Open(t).Store, history)
			before, err := c.Get(t.Context())
			if err != nil || before.V != "200" {
				t.Fatalf("%+v, %v", before, err)
			}
			after, err := c.Update(t.Context(), func(s string) (string, error) { return s, nil })
			if err != nil || after != before {
				t.Errorf("update to the same: %+v, %v; before %+v", after, err, before)
			}
			wrong := errors.New("wrong")
			if _, err := c.Update(t.Context(), func(string) (string, error) { return "", wrong }); !errors.Is(err, wrong) {
				t.Errorf("update that fails: %v", err)
			}
			if kept := len(f.Nodes(configPath + "-history/")); kept > history+1 {
				t.Errorf("%d versions kept", kept)
			}
		})
	}
}

// increment counts in decimal.
func increment(s string) (string, error) {
	n, err := strconv.Atoi("0" + strings.TrimSpace(s))
	return fmt.Sprint(n + 1), err
}
