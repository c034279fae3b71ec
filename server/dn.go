package server

import (
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
)

// dnKeywords are the types of attributes that RFC 2253 has names for; all others are
// written as numbers, with the value in hex.
var dnKeywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

// dnAttribute is AttributeTypeAndValue with the value as it was encoded.
type dnAttribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// dnPartSET is RelativeDistinguishedName. encoding/asn1 knows a set by the type's name.
type dnPartSET []dnAttribute

// distinguishedName writes a subject as Java's X500Principal.getName does, so that it is
// the id that access lists of a ZooKeeper ensemble have. pkix.Name's text is another.
func distinguishedName(raw []byte) (string, error) {
	var parts []dnPartSET
	if rest, err := asn1.Unmarshal(raw, &parts); err != nil {
		return "", err
	} else if len(rest) > 0 {
		return "", errors.New("bytes behind the subject")
	}
	slices.Reverse(parts)
	var dn strings.Builder
	for i, part := range parts {
		if i > 0 {
			dn.WriteByte(',')
		}
		for j, a := range part {
			if j > 0 {
				dn.WriteByte('+')
			}
			dn.WriteString(a.text())
		}
	}
	return dn.String(), nil
}

func (a *dnAttribute) text() string {
	kind := a.Type.String()
	var value string
	if keyword, ok := dnKeywords[kind]; ok {
		if _, err := asn1.Unmarshal(a.Value.FullBytes, &value); err == nil {
			return keyword + "=" + escapeDN(value)
		}
	}
	return kind + "=#" + hex.EncodeToString(a.Value.FullBytes)
}

// escapeDN puts a backslash before what has a meaning in a name, before = too as Java
// does, and before spaces at either end.
func escapeDN(s string) string {
	inner := strings.Trim(s, " ")
	lead := len(s) - len(strings.TrimLeft(s, " "))
	var b strings.Builder
	b.WriteString(strings.Repeat(`\ `, lead))
	for _, r := range inner {
		switch {
		case r == 0:
			b.WriteString(`\00`)
			continue
		case strings.ContainsRune(`,=+<>#;"\`, r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	b.WriteString(strings.Repeat(`\ `, len(s)-lead-len(inner)))
	return b.String()
}
