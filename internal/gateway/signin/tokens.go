package signin

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

const (
	// minToken and maxToken bound a service token, in bytes.
	minToken, maxToken = 32, 1024
	// maxTokens bounds how many an App has.
	maxTokens = 100
)

// Tokens are the service tokens of an App: keyed digests of them, each with its name.
type Tokens struct {
	key    []byte
	byHash map[[sha256.Size]byte]string
}

// ParseTokens reads the data of a Secret, whose keys are the tokens' names. Its errors have no
// token.
func ParseTokens(data map[string][]byte) (*Tokens, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("it has no keys; add one for each client, with a token of at least %d characters", minToken)
	}
	if len(data) > maxTokens {
		return nil, fmt.Errorf("it has %d keys, more than %d; remove those of clients that are gone", len(data), maxTokens)
	}
	t := &Tokens{key: make([]byte, sha256.Size), byHash: map[[sha256.Size]byte]string{}}
	_, _ = rand.Read(t.key) // it never fails
	for _, name := range slices.Sorted(maps.Keys(data)) {
		token := bytes.TrimRight(data[name], "\r\n") // editors end a file so
		switch {
		case len(token) < minToken || len(token) > maxToken:
			return nil, fmt.Errorf("key %s: the token has %d characters, and needs %d to %d", name, len(token), minToken, maxToken)
		case bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
			return nil, fmt.Errorf("key %s: the token has a character that no header has; use letters and digits", name)
		}
		sum := t.digest(token)
		if other, there := t.byHash[sum]; there {
			return nil, fmt.Errorf("key %s: the token is that of %s; give each client its own", name, other)
		}
		t.byHash[sum] = name
	}
	return t, nil
}

func (t *Tokens) digest(token []byte) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, t.key)
	mac.Write(token)
	mac.Sum(sum[:0])
	return sum
}

// find returns the name of a token. How long that takes says nothing of other tokens: their digests
// are of a key that only this process has.
func (t *Tokens) find(token string) (name string, ok bool) {
	if t == nil || len(token) < minToken || len(token) > maxToken {
		return "", false
	}
	name, ok = t.byHash[t.digest([]byte(token))]
	return name, ok
}
