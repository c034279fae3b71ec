package server

import (
	"bufio"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// WriteTo prints the configuration as YAML that LoadConfig reads, with the source of
// each value as a comment. Secrets are redacted.
func (l *LoadedConfig) WriteTo(w io.Writer) (int64, error) {
	out := &countingWriter{w: bufio.NewWriter(w)}
	for i := range settings {
		s := &settings[i]
		origin := l.Origin[s.name]
		if origin == "" {
			origin = "default"
		}
		text := s.value(&l.Config).get()
		if text == "" {
			fmt.Fprintf(out, "# %s: not set\n", s.name)
			continue
		}
		fmt.Fprintf(out, "%s: %s # %s\n", s.name, yamlScalar(text), origin)
	}
	return out.n, out.w.Flush()
}

// WriteDefaultConfig prints a YAML file that explains every setting and sets none.
func WriteDefaultConfig(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "# Settings of tenured. A flag --NAME is stronger than the environment variable")
	fmt.Fprintln(out, "# TENURE_NAME (capitals, underscores), and that is stronger than this file.")
	for i := range settings {
		s := &settings[i]
		fmt.Fprintf(out, "\n# %s\n# Environment: %s\n#%s:", s.help, s.env(), s.name)
		if s.def != "" {
			fmt.Fprintf(out, " %s", yamlScalar(s.def))
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// yamlScalar quotes text where YAML needs it.
func yamlScalar(text string) string {
	b, err := yaml.Marshal(text)
	if err != nil { // a string always can be
		panic(err)
	}
	scalar := string(b[:len(b)-1])
	if len(scalar) > 2 && scalar[0] == '"' {
		// Numbers and booleans come quoted, so that they would stay strings; every
		// setting takes its text as written, so the quotes only hurt the eye.
		if _, err := fmt.Sscanf(text, "%d", new(int64)); err == nil || text == "true" || text == "false" {
			return text
		}
	}
	return scalar
}

// countingWriter counts for io.WriterTo.
type countingWriter struct {
	w *bufio.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
