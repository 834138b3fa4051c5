package store

import (
	"crypto/rand"
	"strings"
)

// NewID returns the ID of an agent or an offer: 80 random bits as a DNS label.
func NewID() string { return strings.ToLower(rand.Text()[:16]) }
