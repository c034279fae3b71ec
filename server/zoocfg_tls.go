package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// Where nothing uses a key of TLS.
const zooNoSecurePort = "there is no secureClientPort that it would concern"

// keyStore takes certificate chain and private key from one file, as ZooKeeper's PEM
// stores have them.
func (z *zooCfg) keyStore(e *zooEntry) {
	if z.port("secureClientPort") == "" {
		z.ignore(e, zooNoSecurePort)
		return
	}
	if kind := z.storeType(e, "ssl.keyStore.type"); kind != "PEM" {
		how := "openssl pkcs12 -in store.p12 -nodes -out store.pem"
		if kind != "PKCS12" {
			how = "keytool -importkeystore -srckeystore " + e.Value + " -destkeystore store.p12 -deststoretype PKCS12, then " + how
		}
		z.refuse(e, "is a store of type "+kind+", and TLS here takes PEM. Convert it ("+how+") and name the result, or give tls-cert and tls-key", "tls-cert", "tls-key")
		return
	}
	// A file that cannot be read is named when TLS is set up.
	if text, _ := os.ReadFile(e.Value); bytes.Contains(text, []byte("ENCRYPTED")) {
		z.refuse(e, "holds an encrypted private key, and nobody types a password here. Decrypt it (openssl pkey) and keep the file from others' eyes, or give tls-cert and tls-key",
			"tls-cert", "tls-key")
		return
	}
	z.set(e, "tls-cert", e.Value)
	z.set(e, "tls-key", e.Value)
}

func (z *zooCfg) trustStore(e *zooEntry) {
	switch kind := z.storeType(e, "ssl.trustStore.type"); {
	case z.port("secureClientPort") == "":
		z.ignore(e, zooNoSecurePort)
	case z.value("ssl.clientAuth") == "none":
		z.ignore(e, "ssl.clientAuth is none")
	case kind != "PEM":
		z.refuse(e, "is a store of type "+kind+", and TLS here takes PEM. Convert it (keytool -list -rfc -keystore "+e.Value+
			" > ca.pem) and name the result, or give tls-client-ca", "tls-client-ca")
	default:
		z.set(e, "tls-client-ca", e.Value)
	}
}

func (z *zooCfg) clientAuth(e *zooEntry) {
	if z.port("secureClientPort") == "" {
		z.ignore(e, zooNoSecurePort)
		return
	}
	z.set(e, "tls-client-auth", map[string]string{"need": ClientAuthRequire, "want": ClientAuthRequest, "none": ClientAuthNone}[e.Value])
}

func (z *zooCfg) storeTypeGiven(e *zooEntry) {
	if z.port("secureClientPort") == "" {
		z.ignore(e, zooNoSecurePort)
		return
	}
	z.joined(e, "the type of "+strings.TrimSuffix(e.name, "type")+"location")
}

// storeType is the type that key names, or what the store's name ends in, as ZooKeeper
// tells them.
func (z *zooCfg) storeType(e *zooEntry, key string) string {
	if kind := z.value(key); kind != "" {
		return strings.ToUpper(kind)
	}
	switch strings.ToLower(filepath.Ext(e.Value)) {
	case ".pem":
		return "PEM"
	case ".p12":
		return "PKCS12"
	case ".bcfks":
		return "BCFKS"
	}
	return "JKS"
}
