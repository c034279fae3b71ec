package server

import (
	"encoding/json"
	"fmt"
	"strings"
)

// jsonField is one member of a jsonObject.
type jsonField struct {
	key   string
	value any // jsonObject, []any, or what encoding/json makes of a scalar
}

// jsonObject is an object whose members keep their order.
type jsonObject []jsonField

// appendJSON appends v as ZooKeeper's AdminServer prints it: two blanks per level, blanks
// around colons, the elements of an array on one line. Scripts that look for a line find it.
func appendJSON(b *strings.Builder, v any, indent string) {
	switch v := v.(type) {
	case jsonObject:
		appendObject(b, v, indent)
	case []any:
		b.WriteString("[ ")
		for i, one := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			appendJSON(b, one, indent)
		}
		if len(v) > 0 {
			b.WriteString(" ")
		}
		b.WriteString("]")
	case float64:
		b.WriteString(zkNumber(v))
	default:
		text, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("server: JSON of %T: %v", v, err))
		}
		b.Write(text)
	}
}

func appendObject(b *strings.Builder, o jsonObject, indent string) {
	b.WriteString("{")
	inner := indent + "  "
	for i, f := range o {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n" + inner)
		appendJSON(b, f.key, inner)
		b.WriteString(" : ")
		appendJSON(b, f.value, inner)
	}
	if len(o) == 0 {
		b.WriteString(" }")
		return
	}
	b.WriteString("\n" + indent + "}")
}
