package store

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// NewID returns the ID of an agent or an offer: 80 random bits as a DNS label.
func NewID() (string, error) {
	b := make([]byte, 10)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(b)), nil
}
