package ca

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A rotation replaces the CA without an interruption:
//
//	Settled ──Start──► Introduced ──Sign──► Signing ──Finish──► Settled
//	Settled ◄──Abort── Introduced ◄──Abort── Signing
//
// Each step replaces the whole state at once. A repeated step changes nothing and returns false, so
// a command may be repeated. Two processes must not take steps at the same time: the caller holds a
// lock.

// noEnd is the expiry of a certificate that never expires (RFC 5280, section 4.1.2.5). A cross
// certificate shows which CA came after which, and that does not change: an agent may need it after
// both have expired. The later CA and its certificates still expire.
var noEnd = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

var (
	errNotStarted = errors.New("no rotation of the CA is in progress; `pipeops-controlplane ca rotate start` begins one")
	errNotSigning = errors.New("the new CA does not sign yet; `pipeops-controlplane ca rotate sign` comes first")
)

// Stage returns the current stage of the rotation.
func (c Rotation) Stage() Stage { return c.state.Load().stage }

// Other returns the CA that is trusted beside the signing one; nil if there is none.
func (c Trust) Other() *x509.Certificate {
	if other := c.state.Load().other; other != nil {
		return other.cert
	}
	return nil
}

// FormerCAs returns the CAs whose keys are gone, the latest first.
func (c Trust) FormerCAs() []*x509.Certificate { return certsOf(c.state.Load().former) }

// Step is a step of a rotation.
type Step string

// The steps of a rotation.
const (
	// Start creates a new CA, signed by the old one, to be trusted beside it.
	Start Step = "start"
	// Sign makes the new CA sign from now on.
	Sign Step = "sign"
	// Finish removes the old CA and its key.
	Finish Step = "finish"
	// Abort goes one step back: the old CA signs again, or the new one is removed with its key.
	Abort Step = "abort"
)

// Check reports whether a step is possible, and whether it would change anything.
func (c Rotation) Check(step Step) (bool, error) {
	next, err := c.plan(step)
	return next != nil, err
}

// Take takes a step and reports whether that changed anything.
func (c Rotation) Take(step Step) (bool, error) {
	next, err := c.plan(step)
	if err != nil || next == nil {
		return false, err
	}
	if step == Start {
		if err := c.recordStart(next); err != nil {
			return false, err
		}
	}
	return true, c.replace(next)
}

// recordStart records the new CA's own certificates, and the one that the old CA signed for it.
func (c Rotation) recordStart(next *state) error {
	if err := c.recordAll(*next.other, reasonRotation); err != nil {
		return err
	}
	return c.record(next.cross[0], reasonRotation)
}

// plan returns the state after a step; nil if that is the current state.
func (c Rotation) plan(step Step) (*state, error) {
	s := c.state.Load()
	switch step {
	case Start:
		return s.start(c.domains, c.now())
	case Sign:
		return s.signNew()
	case Finish:
		return s.finish()
	case Abort:
		return s.abort()
	}
	return nil, fmt.Errorf("%q is not a step of a rotation", step)
}

func (s *state) start(domains Domains, now time.Time) (*state, error) {
	if s.stage != Settled {
		return nil, nil
	}
	if s.signing.key == nil {
		return nil, &RootAwayError{For: "signing its successor"}
	}
	next, err := generate(domains, now)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	cross, err := certify(&x509.Certificate{
		SerialNumber: serial, Subject: next.cert.Subject, SubjectKeyId: next.cert.SubjectKeyId,
		NotBefore: next.cert.NotBefore, NotAfter: noEnd, PublicKey: next.cert.PublicKey, MaxPathLen: -1,
	}, s.signing.cert, s.signing.pair)
	if err != nil {
		return nil, err
	}
	return &state{
		stage: Introduced, signing: s.signing, other: &next,
		cross: slices.Concat([]*x509.Certificate{cross}, s.cross), former: s.former,
	}, nil
}

func (s *state) signNew() (*state, error) {
	switch s.stage {
	case Settled:
		return nil, errNotStarted
	case Signing:
		return nil, nil
	}
	return s.swapped(Signing), nil
}

func (s *state) finish() (*state, error) {
	switch {
	case s.stage == Introduced:
		return nil, errNotSigning
	case s.stage == Settled && len(s.former) == 0:
		return nil, errNotStarted
	case s.stage == Settled:
		return nil, nil
	}
	return &state{stage: Settled, signing: s.signing, cross: s.cross, former: withFormer(s)}, nil
}

func (s *state) abort() (*state, error) {
	switch s.stage {
	case Settled:
		return nil, nil
	case Signing:
		return s.swapped(Introduced), nil
	}
	// The cross certificate is of no more use. The CA is kept as a former one: it may have signed,
	// and holders of such certificates must be recognized.
	return &state{stage: Settled, signing: s.signing, cross: s.cross[1:], former: withFormer(s)}, nil
}

func (s *state) swapped(to Stage) *state {
	signing := s.signing
	return &state{stage: to, signing: *s.other, other: &signing, cross: s.cross, former: s.former}
}

// withFormer returns the former CAs with the one that is dropped, of which no key is kept.
func withFormer(s *state) []authority {
	dropped := authority{pair: pair{cert: s.other.cert}}
	for _, i := range s.other.intermediates {
		dropped.intermediates = append(dropped.intermediates, pair{cert: i.cert})
	}
	return slices.Concat([]authority{dropped}, s.former)
}

// replace stores the next state in one step, and continues with it.
func (c *core) replace(next *state) error {
	text, err := next.encode()
	if err != nil {
		return err
	}
	if err := c.keep.Replace(text); err != nil {
		return err
	}
	return c.load()
}
