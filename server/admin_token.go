package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AdminTokenFile is the name of the file in the data directory that holds the admin
// token: 64 hexadecimal digits, mode 0600. Who can read it administrates the server.
const AdminTokenFile = "admin.token"

// adminToken is the token in a form that can be checked and not read: its hash, so that
// nothing that prints a server can show it. The zero value is no token. Immutable.
type adminToken struct{ sum [sha256.Size]byte }

// hashAdminToken takes the token as it is in the file.
func hashAdminToken(text string) adminToken { return adminToken{sha256.Sum256([]byte(text))} }

// drawAdminToken makes a new token, as text.
func drawAdminToken() string {
	var b [adminTokenSize]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

const adminTokenSize = 32

// ok reports whether given is the token, in a time that does not depend on how much of
// it is right.
func (t adminToken) ok(given string) bool {
	sum := sha256.Sum256([]byte(given))
	return t != adminToken{} && subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
}

// openAdminToken reads the token of the data directory, or makes it at the first start.
// A token that every user of the machine can read is refused.
func openAdminToken(dir string) (adminToken, error) {
	path := filepath.Join(dir, AdminTokenFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createAdminToken(path)
	}
	if err != nil {
		return adminToken{}, fmt.Errorf("admin token: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return adminToken{}, fmt.Errorf("admin token: %s has mode %04o: others must have no permission on it; chmod 600 it, "+
			"and if somebody may have read it, remove it and restart for a new one", path, info.Mode().Perm())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return adminToken{}, fmt.Errorf("admin token: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != adminTokenSize {
		return adminToken{}, fmt.Errorf("admin token: %s must hold 64 hexadecimal digits; remove it and restart for a new one", path)
	}
	return hashAdminToken(text), nil
}

// createAdminToken writes a new token under another name first, so that a crash never
// leaves half of one.
func createAdminToken(path string) (adminToken, error) {
	text, unfinished := drawAdminToken(), path+".new"
	err := os.Remove(unfinished)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = writeNewFile(unfinished, text+"\n")
	}
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return adminToken{}, fmt.Errorf("admin token: %w", err)
	}
	return hashAdminToken(text), nil
}

// writeNewFile makes a private file that must not exist yet, and syncs it.
func writeNewFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes names in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
