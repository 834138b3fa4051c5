package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/internal/sigstore"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Signer is a public key as text, or an object with identity or identityRegexp, issuer and
// trustedRoot, as JSON.
type Signer string

// UnmarshalJSON implements json.Unmarshaler. Whether it is a signer at all is checked later.
func (s *Signer) UnmarshalJSON(text []byte) error {
	if !bytes.HasPrefix(text, []byte("{")) {
		return json.Unmarshal(text, (*string)(s))
	}
	var all any // with sorted keys, the same signer is the same text
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	plain, err := json.Marshal(all)
	*s = Signer(plain)
	return err
}

// MarshalJSON implements json.Marshaler.
func (s Signer) MarshalJSON() ([]byte, error) {
	if strings.HasPrefix(string(s), "{") {
		return []byte(s), nil
	}
	return json.Marshal(string(s))
}

// SetSigstore sets what returns the root of trust of keyless signers that have none of their own.
func (p *Policy) SetSigstore(public func() (*verify.Verifier, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sigstore = public
}

// Signers returns by whom the commits must be signed that a command fetches; nil if they need
// not be. The error is why the command is refused.
func (p *Policy) Signers(i runnerapi.Intent) (*signature.Signers, error) {
	rule, err := p.rule(i)
	if err != nil || rule.Signers == nil {
		return nil, err
	}
	s := rule.signers()
	p.mu.Lock()
	s.Sigstore = p.sigstore
	p.mu.Unlock()
	s.Source = fmt.Sprintf("signers of rule %q in %s", rule.Name, p.source)
	return &s, nil
}

// Fetches reports whether what a command begins fetches from Git, which signers bounds.
func Fetches(command string) bool { return slices.Contains(signedCommands, command) }

// signers returns the keys of a rule that was validated.
func (r Rule) signers() (s signature.Signers) {
	for _, text := range r.Signers {
		if key, err := signature.ReadKey(string(text)); err == nil {
			s.Keys = append(s.Keys, key)
		}
	}
	return s
}

func (r Rule) signerNames() (names []string) {
	for _, key := range r.signers().Keys {
		names = append(names, key.String())
	}
	return names
}

// EndedSigners returns lines with the signers that have expired or are revoked at that time.
func (d Document) EndedSigners(at time.Time) (lines []string) {
	for _, r := range d.Rules {
		for _, key := range r.signers().Keys {
			if key.Ended(at) {
				lines = append(lines, fmt.Sprintf("rule %q: the signer %s has expired or is revoked", r.Name, key))
			}
		}
	}
	return lines
}

// signers checks the keys of a rule. A key that has expired is none that is wrong: the policy must
// not become invalid by time.
func (c *checking) signers(field string, r Rule) {
	if r.Signers != nil && !slices.ContainsFunc(signedCommands, func(name string) bool { return slices.Contains(r.Commands, name) }) {
		c.add(field, "bounds %s, of which the rule's commands have to name one", strings.Join(signedCommands, " and "))
	}
	if r.Signers != nil && len(r.Signers) == 0 || len(r.Signers) > signature.MaxKeys {
		c.add(field, "has to have 1 to %d signers; leave it out if commits need not be signed", signature.MaxKeys)
		return
	}
	for n, text := range r.Signers {
		_, err := signature.ReadKey(string(text))
		if wrong, ok := errors.AsType[*sigstore.FieldError](err); ok {
			c.add(fmt.Sprintf("%s[%d].%s", field, n, wrong.Field), "%s", wrong.Message)
		} else if err != nil {
			c.add(fmt.Sprintf("%s[%d]", field, n), "%v", err)
		}
	}
}
