package ca

import (
	"crypto/sha256"
	"crypto/x509"
	"sync"
	"time"
)

// verifiedMost bounds what is remembered; a control plane with more agents verifies
// some more often.
const verifiedMost = 1 << 15

// verified remembers which certificates were found to be ours, and when they are valid:
// an agent shows the same one with each heartbeat and to the tunnel, and to verify its
// signatures costs more than the rest of the call. It is of one state of the CA, so that
// it ends when what is trusted changes. Only what was found good is in it: strangers
// cannot fill it.
type verified struct {
	mu    sync.Mutex
	spans map[[sha256.Size]byte]span
}

// span is a time in which every certificate of a chain is valid.
type span struct{ from, until time.Time }

func spanOf(chain []*x509.Certificate) span {
	s := span{chain[0].NotBefore, chain[0].NotAfter}
	for _, cert := range chain[1:] {
		if cert.NotBefore.After(s.from) {
			s.from = cert.NotBefore
		}
		if cert.NotAfter.Before(s.until) {
			s.until = cert.NotAfter
		}
	}
	return s
}

func (v *verified) has(cert *x509.Certificate, at time.Time) bool {
	if len(cert.UnhandledCriticalExtensions) > 0 {
		return false // it may have been understood by another caller
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.spans[sha256.Sum256(cert.Raw)]
	return ok && !at.Before(s.from) && !at.After(s.until)
}

func (v *verified) add(cert *x509.Certificate, s span) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.spans == nil || len(v.spans) >= verifiedMost {
		v.spans = map[[sha256.Size]byte]span{}
	}
	v.spans[sha256.Sum256(cert.Raw)] = s
}
