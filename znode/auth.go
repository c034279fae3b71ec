package znode

import (
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"strings"
)

// DigestID is the id of scheme "digest" for a user: the name, a colon and the
// base64 form of SHA-1 over "user:password", as ZooKeeper's
// DigestAuthenticationProvider computes it. SHA-1 without salt is what existing
// access lists hold; it protects no weak password from whoever can read them.
func DigestID(user, password string) string {
	return digestID([]byte(user + ":" + password))
}

func digestID(credentials []byte) string {
	user, _, _ := strings.Cut(string(credentials), ":")
	hash := sha1.Sum(credentials)
	return user + ":" + base64.StdEncoding.EncodeToString(hash[:])
}

// Authenticate turns what addauth sends into the identities that it adds to the
// connection. Of ZooKeeper's schemes only two are judged from the request alone:
// "digest", which takes any "user:password" (another password is just another
// identity), and "ip", which adds nothing to the address that is known anyway. All
// others are AuthFailed here.
//
// superDigest is the DigestID that makes its owner super, "" for none.
func Authenticate(scheme string, data []byte, superDigest string) ([]Identity, Error) {
	switch scheme {
	case "digest":
		id := digestID(data)
		if superDigest != "" && subtle.ConstantTimeCompare([]byte(id), []byte(superDigest)) == 1 {
			return []Identity{{Scheme: "super"}, {Scheme: "digest", ID: id}}, OK
		}
		return []Identity{{Scheme: "digest", ID: id}}, OK
	case "ip":
		return nil, OK
	}
	return nil, AuthFailed
}
