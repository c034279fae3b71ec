package server

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

// Goal: a certificate's subject is written as ZooKeeper writes it, character by character.
// Method: subjects with what Java's X500Principal.getName made of them.
func TestDistinguishedNameIsJavas(t *testing.T) {
	oid := func(n ...int) asn1.ObjectIdentifier { return n }
	cn, o, ou := oid(2, 5, 4, 3), oid(2, 5, 4, 10), oid(2, 5, 4, 11)
	dc, uid := oid(0, 9, 2342, 19200300, 100, 1, 25), oid(0, 9, 2342, 19200300, 100, 1, 1)
	email, serial, title := oid(1, 2, 840, 113549, 1, 9, 1), oid(2, 5, 4, 5), oid(2, 5, 4, 12)
	country, state, locality, street := oid(2, 5, 4, 6), oid(2, 5, 4, 8), oid(2, 5, 4, 7), oid(2, 5, 4, 9)
	ia5 := func(s string) asn1.RawValue { return asn1.RawValue{Tag: asn1.TagIA5String, Bytes: []byte(s)} }
	type part = pkix.RelativeDistinguishedNameSET
	for want, subject := range map[string]pkix.RDNSequence{
		"CN=alice,DC=example,DC=com":                {part{{Type: dc, Value: ia5("com")}}, part{{Type: dc, Value: ia5("example")}}, part{{Type: cn, Value: "alice"}}},
		"CN=x,UID=u1":                               {part{{Type: uid, Value: "u1"}}, part{{Type: cn, Value: "x"}}},
		"CN=x,1.2.840.113549.1.9.1=#16056140622e63": {part{{Type: email, Value: ia5("a@b.c")}}, part{{Type: cn, Value: "x"}}},
		"CN=x,2.5.4.12=#130174,2.5.4.5=#1303313233": {part{{Type: serial, Value: "123"}}, part{{Type: title, Value: "t"}}, part{{Type: cn, Value: "x"}}},
		"CN=x,OU=OU,O=O,STREET=Str 1,L=L,ST=S,C=DE": {part{{Type: country, Value: "DE"}}, part{{Type: state, Value: "S"}}, part{{Type: locality, Value: "L"}},
			part{{Type: street, Value: "Str 1"}}, part{{Type: o, Value: "O"}}, part{{Type: ou, Value: "OU"}}, part{{Type: cn, Value: "x"}}},
		`CN=a\,b\+c\=d\<e\>f\;g\"h\\i\#j`: {part{{Type: cn, Value: `a,b+c=d<e>f;g"h\i#j`}}},
		`CN=\ two  spaces\ `:              {part{{Type: cn, Value: " two  spaces "}}},
		`CN=\ \ \ `:                       {part{{Type: cn, Value: "   "}}},
		"CN=Ünï 中":                        {part{{Type: cn, Value: "Ünï 中"}}},
		"CN=a\nb":                         {part{{Type: cn, Value: "a\nb"}}},
		`CN=x\00y`:                        {part{{Type: cn, Value: "x\x00y"}}},
		"CN=":                             {part{{Type: cn, Value: ""}}},
		"O=z,OU=m+CN=multi":               {part{{Type: ou, Value: "m"}, {Type: cn, Value: "multi"}}, part{{Type: o, Value: "z"}}},
		"":                                {},
	} {
		raw, err := asn1.Marshal(subject)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := distinguishedName(raw); err != nil || got != want {
			t.Errorf("%q %v, want %q", got, err, want)
		}
		if got, err := distinguishedName(append(raw, 0)); err == nil {
			t.Errorf("with a byte too many: %q", got)
		}
	}
	if got, err := distinguishedName([]byte{1, 2, 3}); err == nil {
		t.Errorf("nonsense is %q", got)
	}
}
