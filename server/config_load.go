package server

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ConfigFlags are the settings given on a command line: name and raw text.
type ConfigFlags map[string]string

// Register adds a flag for every setting to fs. Their values are judged by
// LoadConfig, together with those of all other sources; only a flag given twice is
// an error at once.
func (f ConfigFlags) Register(fs *flag.FlagSet) {
	for i := range settings {
		s := &settings[i]
		usage := s.help
		if s.def != "" {
			usage += " Default " + s.def + "."
		}
		fs.Var(&flagValue{flags: f, setting: s}, s.name, usage)
	}
}

// flagValue collects one flag for package flag.
type flagValue struct {
	flags   ConfigFlags
	setting *setting
}

func (v *flagValue) String() string { return "" }

func (v *flagValue) IsBoolFlag() bool {
	_, isBool := v.setting.value(&Config{}).(boolValue)
	return isBool
}

func (v *flagValue) Set(text string) error {
	if _, given := v.flags[v.setting.name]; given {
		return rule("given twice; give it once")
	}
	v.flags[v.setting.name] = text
	return nil
}

// Sources are what LoadConfig reads, the strongest first; defaults come last.
type Sources struct {
	Flags ConfigFlags
	// Environ is like os.Environ; of it TENURE_<NAME> counts, in capitals with
	// underscores.
	Environ []string
	// File is the path of a YAML file, "" for none.
	File string
	// ZooCfg is the path of a zoo.cfg, ZooKeeper's configuration, "" for none. With it
	// the system properties in SERVER_JVMFLAGS and JVMFLAGS of Environ count, too.
	ZooCfg string
}

// LoadedConfig is a configuration and where it came from.
type LoadedConfig struct {
	// Config has its defaults filled in and is valid.
	Config Config
	// Origin says per setting where its value was given; defaults are not in it.
	Origin map[string]string
	// Warnings name what was ignored.
	Warnings []string
	// ZooCfg says of each entry of ZooKeeper's configuration what became of it, also
	// where LoadConfig fails.
	ZooCfg []ZooSetting

	texts         map[string]string // per setting, from the strongest source so far
	zooClientPort string            // the origin of zoo.cfg's clientPort
	zooMember     string            // the origin of zoo.cfg's line of this member
}

// LoadConfig merges the sources and validates the result. Its error joins every
// fault found, each naming key, value, source and what is allowed. A relative
// data-dir becomes absolute.
func LoadConfig(from Sources) (LoadedConfig, error) {
	l := LoadedConfig{Origin: map[string]string{}, texts: map[string]string{}}
	var errs []error
	var zoo *zooCfg
	if from.ZooCfg != "" {
		zoo = l.readZooCfg(from.ZooCfg, from.Environ)
	}
	if from.File != "" {
		errs = append(errs, l.readFile(from.File)...)
	}
	errs = append(errs, l.readEnviron(from.Environ)...)
	for i := range settings {
		s := &settings[i]
		if text, given := from.Flags[s.name]; given {
			errs = append(errs, l.set(s, text, "flag --"+s.name))
		}
	}
	if zoo != nil {
		var broken []error
		l.ZooCfg, broken = zoo.conclude()
		errs = append(errs, broken...)
	}
	if err := errors.Join(errs...); err != nil {
		return l, err
	}
	for i := range settings {
		if text, given := l.texts[settings[i].name]; given {
			if err := settings[i].value(&l.Config).set(text); err != nil {
				return l, err // cannot be: it was judged above
			}
		}
	}
	l.Config = l.Config.WithDefaults()
	if dir := l.Config.DataDir; dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return l, &ConfigError{Key: "data-dir", Value: dir, Source: l.Origin["data-dir"], Rule: err.Error()}
		}
		l.Config.DataDir = abs
	}
	return l, l.locate(l.Config.Validate())
}

// set judges one value and keeps it in place of a weaker source's. An emptied value
// is the default, so that a stronger source can take back what a weaker one set.
func (l *LoadedConfig) set(s *setting, text, source string) error {
	text = strings.TrimSpace(text)
	if text == "" {
		delete(l.texts, s.name)
		delete(l.Origin, s.name)
		return nil
	}
	if err := s.value(&Config{}).set(text); err != nil {
		e := s.error(text, err)
		e.Source = source
		return e
	}
	l.texts[s.name], l.Origin[s.name] = text, source
	return nil
}

// locate adds to every ConfigError in err where the value was given.
func (l *LoadedConfig) locate(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			var ce *ConfigError
			if errors.As(e, &ce) {
				ce.Source = l.Origin[ce.Key]
				switch {
				case ce.Source == "":
				case ce.Key == "zk-listen" && ce.Source == l.zooClientPort:
					ce.Rule += zooOpenAdvice
				case ce.Key == "peer-listen" && ce.Source == l.zooMember:
					ce.Rule += zooPeerAdvice
				}
			}
		}
	}
	return err
}

// clientVariables are names that the command line tool, the daemon's own flags and
// container platforms put into the environment; they are no settings.
var clientVariables = []string{
	"TENURE_CONFIG", "TENURE_ZOO_CFG", "TENURE_HINTS", "TENURE_ENDPOINT", "TENURE_ENDPOINTS", "TENURE_AUTH",
	"TENURE_TOKEN", "TENURE_TOKEN_FILE", "TENURE_PATH", "TENURE_SESSION",
}

// readEnviron takes the settings from environment variables. Others that begin with
// TENURE_ are only warned of: a service called tenure makes Kubernetes inject
// TENURE_PORT and the like into every container.
func (l *LoadedConfig) readEnviron(environ []string) []error {
	var errs []error
	for _, variable := range environ {
		name, text, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(clientVariables, name) {
			continue
		}
		key := strings.ReplaceAll(strings.ToLower(name[len(envPrefix):]), "_", "-")
		s := settingNamed(key)
		if s == nil || s.env() != name {
			l.Warnings = append(l.Warnings, fmt.Sprintf("environment variable %s is ignored: there is no setting %s%s",
				name, key, suggestion(key, settingNames())))
			continue
		}
		errs = append(errs, l.set(s, text, "environment "+name))
	}
	return errs
}

// readFile takes the settings from a YAML file: one flat mapping.
func (l *LoadedConfig) readFile(path string) []error {
	data, err := os.ReadFile(path)
	if err != nil {
		return []error{fmt.Errorf("config = %q: %w", path, err)}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return []error{fmt.Errorf("config = %q: not valid YAML: %w", path, err)}
	}
	if doc.Kind == 0 {
		return nil // empty, or comments only
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("config = %q: line %d: must be a mapping of settings, as in listen: 127.0.0.1:2180", path, root.Line)}
	}
	var errs []error
	lines := map[string]int{}
	for i := 0; i < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		source := fmt.Sprintf("%s line %d", path, key.Line)
		s := settingNamed(key.Value)
		switch first, given := lines[key.Value]; {
		case s == nil:
			errs = append(errs, &ConfigError{Key: key.Value, Value: node.Value, Source: source,
				Rule: "there is no such setting" + suggestion(key.Value, settingNames())})
		case given:
			e := s.error(node.Value, rule("given twice, first in line %d; give it once", first))
			e.Source = source
			errs = append(errs, e)
		default:
			lines[key.Value] = key.Line
			text, err := yamlText(s, node)
			if err != nil {
				e := s.error(node.Value, err)
				e.Source = source
				errs = append(errs, e)
				continue
			}
			errs = append(errs, l.set(s, text, source))
		}
	}
	return errs
}

// yamlText returns the value of one setting as text: a scalar as it is written, or
// for lists a sequence of scalars.
func yamlText(s *setting, node *yaml.Node) (string, error) {
	isList := false
	switch s.value(&Config{}).(type) {
	case listValue, strictListValue:
		isList = true
	}
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return node.Value, nil
	case node.Kind == yaml.ScalarNode:
		return "", rule("has no value; remove the line to have the default")
	case node.Kind == yaml.SequenceNode && isList:
		var items []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode || strings.Contains(item.Value, ",") {
				return "", rule("line %d: must be a list of plain values", item.Line)
			}
			items = append(items, item.Value)
		}
		return strings.Join(items, ","), nil
	default:
		return "", rule("must be one plain value")
	}
}

func settingNames() []string {
	var names []string
	for i := range settings {
		names = append(names, settings[i].name)
	}
	return names
}

// suggestion is "; did you mean X?" with the nearest of names, or which names there
// are if none is near.
func suggestion(name string, names []string) string {
	if best := nearest(name, names); best != "" {
		return "; did you mean " + best + "?"
	}
	return "; the names are listed by `tenured config print-default`"
}

// nearest returns the one of names that a misspelt name is most like, "" if none is near.
func nearest(name string, names []string) string {
	best, distance := "", len(name)/2+1
	for _, candidate := range names {
		if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// SuggestSetting is a hint for a flag that does not exist: the nearest that does.
func SuggestSetting(name string) string { return suggestion(name, settingNames()) }

// editDistance counts the insertions, deletions and replacements from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
