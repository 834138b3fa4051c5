package imagesignature

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/sigstore"
)

// Keyless returns the signer of images that a keyless signer is.
func Keyless(k sigstore.Signer) Signer {
	s := Signer{id: k.ID, text: k.Text, policy: k.Policy, keyless: true}
	if k.Verifier != nil {
		s.verifiers = []*verify.Verifier{k.Verifier}
	}
	return s
}

// Signer is one whose signatures of images count: a key, or an identity to which Sigstore's CA
// gives certificates.
type Signer struct {
	id, text string
	keyless  bool
	policy   verify.PolicyOption
	// verifiers are the ways to verify a signature, any of which is enough; nil for a signer of the
	// public Sigstore, whose root of trust is fetched.
	verifiers []*verify.Verifier
}

// ID identifies the signer: the SHA-256 of a key, as SubjectPublicKeyInfo, or the whole entry.
func (s Signer) ID() string { return s.id }

// String returns the signer's name for people.
func (s Signer) String() string { return s.text }

// signed returns nil if the signature is this signer's, and of the image of that digest.
func (s Signer) signed(sig signature, digest string, public func() (*verify.Verifier, error)) error {
	artifact, err := sig.about(digest)
	if err != nil {
		return err
	}
	verifiers := s.verifiers
	if verifiers == nil {
		v, err := public()
		if err != nil {
			return err
		}
		verifiers = []*verify.Verifier{v}
	}
	for _, v := range verifiers {
		if _, err = v.Verify(sig.bundle, verify.NewPolicy(artifact(), s.policy)); err == nil {
			return nil
		}
	}
	return err
}

// trial looks for a signature by one of the signers, and keeps why others do not count.
type trial struct {
	signers []Signer
	digest  string
	public  func() (*verify.Verifier, error)

	why  map[string][]string // by signer
	away error               // the root of trust could not be fetched
}

func (t *trial) passes(sig signature) bool {
	for _, s := range t.signers {
		err := s.signed(sig, t.digest, t.public)
		if err == nil {
			return true
		}
		if unavailable, ok := errors.AsType[*sigstore.RootError](err); ok {
			t.away = unavailable
		}
		const most = 2 // reasons of a signer that are shown
		if why := printable.Shorten(printable.Text(sigstore.Reason(err)), maxReason); len(t.why[s.id]) < most && !slices.Contains(t.why[s.id], why) {
			if t.why == nil {
				t.why = map[string][]string{}
			}
			t.why[s.id] = append(t.why[s.id], why)
		}
	}
	return false
}

// Bounds of what a refusal says.
const (
	maxReason  = 300
	maxRefusal = 1500
)

// refusals returns what was tried of each signer.
func (t *trial) refusals() string {
	return listed(t.signers, func(s Signer) string { return s.text + ": " + strings.Join(t.why[s.id], ", and ") }, "; ")
}

// listed returns texts of the signers, bounded.
func listed(signers []Signer, text func(Signer) string, between string) string {
	var b strings.Builder
	for n, s := range signers {
		next := text(s)
		if n > 0 && b.Len()+len(next) > maxRefusal {
			fmt.Fprintf(&b, "%sand %d others", between, len(signers)-n)
			break
		}
		if n > 0 {
			b.WriteString(between)
		}
		b.WriteString(next)
	}
	return b.String()
}
