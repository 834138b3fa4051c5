package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

const (
	// signedInFor is how long a password that was checked counts as right without another check,
	// and maxSignedIn how many are remembered.
	signedInFor = 5 * time.Minute
	maxSignedIn = 1000
)

// signedIn remembers users, without their passwords. Browsers send the password with each request,
// and a check is slow on purpose.
type signedIn struct {
	key   []byte
	mu    sync.Mutex
	until map[[sha256.Size]byte]time.Time
}

func newSignedIn() *signedIn {
	s := &signedIn{key: make([]byte, sha256.Size), until: map[[sha256.Size]byte]time.Time{}}
	_, _ = rand.Read(s.key) // it never fails
	return s
}

func (s *signedIn) digest(user, password string) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, s.key)
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(user)))
	mac.Write(length[:])
	mac.Write([]byte(user + password))
	mac.Sum(sum[:0])
	return sum
}

func (s *signedIn) has(user, password string, now time.Time) bool {
	sum := s.digest(user, password)
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[sum])
}

func (s *signedIn) add(user, password string, now time.Time) {
	sum := s.digest(user, password)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.until) >= maxSignedIn {
		clear(s.until)
	}
	s.until[sum] = now.Add(signedInFor)
}
