package server

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// ZooSetting is what became of one entry of ZooKeeper's configuration. It is a plain value.
type ZooSetting struct {
	Key, Value string // as given; a secret value is redacted
	Source     string // file and line, or the environment variable
	Verdict    ZooVerdict
	Text       string // the settings that it became, or why it became none
	// Felt marks what clients or operators may miss, though the server starts.
	Felt bool
}

// ZooVerdict says in one word what became of an entry.
type ZooVerdict string

// The verdicts. Only what is refused keeps the server from starting.
const (
	ZooHonoured   ZooVerdict = "honoured"
	ZooOverridden ZooVerdict = "overridden" // a stronger source has its setting
	ZooIgnored    ZooVerdict = "ignored"
	ZooUnknown    ZooVerdict = "unknown" // ignored, as ZooKeeper ignores it
	ZooRefused    ZooVerdict = "refused"
)

// String is the entry's line of the table that start-up and `config check` print.
func (z ZooSetting) String() string {
	return fmt.Sprintf("%-10s %s = %s (%s): %s", z.Verdict, z.Key, z.Value, z.Source, z.Text)
}

// zooEntry is one entry on its way through the table of keys.
type zooEntry struct {
	ZooSetting
	name   string // Key without the prefix of Java's system properties
	key    *zooKey
	became []string // settings, not yet judged against stronger sources
}

// zooCfg is ZooKeeper's configuration while LoadConfig reads it.
type zooCfg struct {
	loaded   *LoadedConfig
	entries  []*zooEntry
	members  []*zooEntry // server.N
	refusals []zooRefusal
	errs     []error
}

// zooRefusal keeps the server from starting, unless stronger sources give all of settings.
type zooRefusal struct {
	entry    *zooEntry
	settings []string
	rule     string
}

// readZooCfg takes settings from ZooKeeper's configuration: the file at path, and the
// system properties that its scripts hand to Java in environ.
func (l *LoadedConfig) readZooCfg(path string, environ []string) *zooCfg {
	z := &zooCfg{loaded: l}
	z.readFile(path)
	if dynamic := z.entry("dynamicConfigFile"); dynamic != nil {
		z.readFile(dynamic.Value)
	}
	z.readSystemProperties(environ)
	for _, e := range z.entries {
		z.apply(e)
	}
	z.checkMembers()
	return z
}

func (z *zooCfg) readFile(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		z.errs = append(z.errs, fmt.Errorf("zoo-cfg = %q: %w", path, err))
		return
	}
	all, err := parseProperties(string(text))
	if err != nil {
		z.errs = append(z.errs, fmt.Errorf("zoo-cfg = %q: %w", path, err))
	}
	for _, p := range all {
		e := z.newEntry(p.key, p.value, fmt.Sprintf("%s line %d", path, p.line))
		first := z.entry(e.name)
		z.entries = append(z.entries, e)
		if first != nil && first.Value != e.Value {
			z.fail(e, "given twice, first in "+first.Source+"; ZooKeeper would take the last: give it once")
		}
	}
}

// readSystemProperties reads the variables in the order in which ZooKeeper's scripts put
// them on Java's command line, where the last wins; the file is stronger than both.
func (z *zooCfg) readSystemProperties(environ []string) {
	inFile := len(z.entries)
	for _, variable := range []string{"SERVER_JVMFLAGS", "JVMFLAGS"} {
		for _, word := range strings.Fields(lookupEnv(environ, variable)) {
			name, value, _ := strings.Cut(strings.TrimPrefix(word, "-D"), "=")
			e := z.newEntry(name, value, "environment "+variable)
			if !strings.HasPrefix(word, "-D") || e.key == nil && e.name == name {
				continue // the virtual machine's own
			}
			at := slices.IndexFunc(z.entries, func(o *zooEntry) bool { return o.name == e.name })
			switch {
			case at < 0:
				z.entries = append(z.entries, e)
			case at >= inFile:
				z.entries[at] = e
			}
		}
	}
}

// lookupEnv returns the value of a variable in environ, "" if it is not there.
func lookupEnv(environ []string, name string) string {
	for _, v := range environ {
		if text, found := strings.CutPrefix(v, name+"="); found {
			return text
		}
	}
	return ""
}

// systemPrefix is what ZooKeeper puts before a key that it makes a system property of.
const systemPrefix = "zookeeper."

func (z *zooCfg) newEntry(key, value, source string) *zooEntry {
	e := &zooEntry{ZooSetting: ZooSetting{Key: key, Value: value, Source: source}, name: strings.TrimPrefix(key, systemPrefix)}
	e.key = zooKeyNamed(e.name)
	return e
}

// entry returns the entry of a key, nil if there is none.
func (z *zooCfg) entry(name string) *zooEntry {
	for _, e := range z.entries {
		if e.name == name {
			return e
		}
	}
	return nil
}

// value returns the value of a key, "" if there is none.
func (z *zooCfg) value(name string) string {
	if e := z.entry(name); e != nil {
		return e.Value
	}
	return ""
}

// apply judges one entry and lets it become settings.
func (z *zooCfg) apply(e *zooEntry) {
	if e.key == nil {
		e.Verdict, e.Felt, e.Text = ZooUnknown, true, "no key that Tenure knows of"
		if near := nearest(e.name, zooKeyNames()); near != "" {
			e.Text += "; did you mean " + near + "?"
		}
		return
	}
	e.Verdict, e.Text, e.Felt = ZooIgnored, e.key.text, e.key.felt
	if e.key.form != nil {
		if err := e.key.form(e.Value); err != nil {
			z.fail(e, err.Error())
			return
		}
	}
	switch {
	case e.key.apply != nil:
		e.key.apply(z, e)
	case slices.Contains(strings.Fields(e.key.harmless), strings.ToLower(e.Value)):
		e.Text = "that is what is here"
	case e.key.refused:
		z.refuse(e, e.key.text)
	}
}

// shown is the value as it may be printed. Keys that nobody here knows hold secrets, too.
func (e *zooEntry) shown() string {
	if e.key != nil && e.key.secret || strings.Contains(strings.ToLower(e.name), "password") {
		return Secret(e.Value).String()
	}
	return e.Value
}

// set makes the entry a setting of Tenure's.
func (z *zooCfg) set(e *zooEntry, name, text string) {
	s := settingNamed(name)
	if err := z.loaded.set(s, text, z.origin(e)); err != nil {
		if broken, ok := errors.AsType[*ConfigError](err); ok {
			z.fail(e, "becomes "+name+", which "+broken.Rule)
		}
		return
	}
	var c Config
	value := s.value(&c)
	_ = value.set(text) // judged above
	if e.Verdict = ZooHonoured; len(e.became) == 0 {
		e.Text = ""
	} else {
		e.Text += ", "
	}
	e.Text += name + " = " + value.get()
	e.Felt = false
	e.became = append(e.became, name)
}

// origin is what an entry is called as the source of a setting.
func (z *zooCfg) origin(e *zooEntry) string { return e.Source + ", " + e.Key }

// joined marks an entry that has its effect through another's setting.
func (z *zooCfg) joined(e *zooEntry, text string) {
	e.Verdict, e.Text, e.Felt = ZooHonoured, text, false
}

// ignore replaces the reason that the table has for ignoring an entry.
func (z *zooCfg) ignore(e *zooEntry, why string) { e.Verdict, e.Text = ZooIgnored, why }

// fail reports a value of a wrong form.
func (z *zooCfg) fail(e *zooEntry, rule string) {
	e.Verdict, e.Text = ZooRefused, rule
	z.errs = append(z.errs, &ConfigError{Key: e.Key, Value: e.shown(), Source: e.Source, Rule: rule})
}

// refuse reports a value that Tenure cannot honour and must not ignore; other sources
// that give all of settings lift it.
func (z *zooCfg) refuse(e *zooEntry, rule string, settings ...string) {
	e.Verdict, e.Text = ZooRefused, rule
	z.refusals = append(z.refusals, zooRefusal{e, settings, rule})
}

// conclude compares what was read with what the other sources have made of it, which must
// have been read, and returns the table and the errors.
func (z *zooCfg) conclude() ([]ZooSetting, []error) {
	for _, r := range z.refusals {
		lifted := len(r.settings) > 0 && !slices.ContainsFunc(r.settings, func(name string) bool { return z.loaded.Origin[name] == "" })
		if lifted {
			r.entry.Verdict, r.entry.Text = ZooOverridden, "by "+z.loaded.Origin[r.settings[0]]
			continue
		}
		z.errs = append(z.errs, &ConfigError{Key: r.entry.Key, Value: r.entry.shown(), Source: r.entry.Source, Rule: r.rule})
	}
	table := make([]ZooSetting, 0, len(z.entries))
	for _, e := range z.entries {
		for _, name := range e.became {
			if by := z.loaded.Origin[name]; by != z.origin(e) && e.Verdict == ZooHonoured {
				if by == "" {
					by = "an empty value"
				}
				e.Verdict, e.Text = ZooOverridden, name+" comes from "+by
			}
		}
		if e.name == "dataDir" && e.Verdict == ZooHonoured {
			z.warnOfTheirData(e)
		}
		e.Value = e.shown()
		table = append(table, e.ZooSetting)
	}
	return table, z.errs
}
