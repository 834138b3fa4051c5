// Package htpasswd reads files of users and password hashes as htpasswd(1) writes them, and checks
// passwords against them.
package htpasswd

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"

	"github.com/tg123/go-htpasswd"
	"golang.org/x/crypto/bcrypt"
)

const (
	// MaxSize is the largest file that Parse takes, in bytes, and maxUsers the most users.
	MaxSize  = 256 << 10
	maxUsers = 1000
	// maxCost bounds what a check takes: bcrypt of this cost takes a quarter of a second.
	maxCost = 12
	// maxPassword is the longest password that is checked, in bytes.
	maxPassword = 256
)

// File has the users of a file. It does not change.
type File struct {
	users map[string]htpasswd.EncodedPasswd
	decoy htpasswd.EncodedPasswd
}

// Parse reads a file. Hashes are those of bcrypt (htpasswd -B) and of Apache's MD5 (htpasswd -m,
// openssl passwd -apr1). Errors name the line, and nothing of what it holds.
func Parse(data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("it has %d bytes, and may have %d", len(data), MaxSize)
	}
	f := &File{users: map[string]htpasswd.EncodedPasswd{}}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, MaxSize+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		user, hash, found := strings.Cut(line, ":")
		if !found || user == "" {
			return nil, fmt.Errorf("line %d is not USER:HASH", n)
		}
		checked, err := parseHash(hash)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		f.users[user], f.decoy = checked, checked
		if len(f.users) > maxUsers {
			return nil, fmt.Errorf("it has more than %d users", maxUsers)
		}
	}
	if len(f.users) == 0 {
		return nil, fmt.Errorf("it has no users")
	}
	return f, nil
}

func parseHash(hash string) (htpasswd.EncodedPasswd, error) {
	if cost, err := bcrypt.Cost([]byte(hash)); err == nil {
		if cost > maxCost {
			return nil, fmt.Errorf("its hash has the cost %d, and may have %d", cost, maxCost)
		}
		return htpasswd.AcceptBcrypt(hash)
	}
	if checked, err := htpasswd.AcceptMd5(hash); err == nil && checked != nil { // err has the hash
		return checked, nil
	}
	return nil, fmt.Errorf("its hash is of neither bcrypt (htpasswd -B) nor Apache's MD5 (openssl passwd -apr1)")
}

// Match reports whether a user has a password. It takes as long for a user who does not exist.
func (f *File) Match(user, password string) bool {
	if len(password) > maxPassword {
		return false
	}
	checked, known := f.users[user]
	if !known {
		checked = f.decoy
	}
	return checked.MatchesPassword(password) && known
}
