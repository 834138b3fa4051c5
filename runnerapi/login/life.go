package login

import (
	"crypto/x509"
	"time"
)

// soonest is the least time between two attempts of Run to renew a certificate that is due.
const soonest = time.Minute

// dueAt returns when a certificate is to be renewed: at two thirds of its life.
func dueAt(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)
}

func (l *Login) due() bool { return !l.now().Before(dueAt(l.certificate.Load().Leaf)) }

// ended reports whether agents refuse the certificate by now.
func (l *Login) ended() bool { return l.now().After(l.certificate.Load().Leaf.NotAfter) }

// next returns how long Run waits if it asks that often.
func (l *Login) next(every time.Duration) time.Duration {
	return min(every, max(soonest, dueAt(l.certificate.Load().Leaf).Sub(l.now())))
}
