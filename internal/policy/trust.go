package policy

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// Trust defines by what some Runners prove themselves beside a certificate of the control plane's
// CA: by a pinned key, or by a certificate of the customer's own CA.
type Trust struct {
	// Runners are names of Runners; * stands for any text. All when absent.
	Runners []string `json:"runners,omitzero"`
	// Keys are fingerprints of public keys, as `pipeops-runner credentials` prints them.
	Keys []string `json:"keys,omitzero"`
	// CA is certificates in PEM.
	CA string `json:"ca,omitempty"`
}

// Trusts returns why a Runner is refused, and nil if it is admitted. The Runner presented certs,
// its own first, which the control plane's CA has signed. A policy without trust leaves the
// decision to the control plane's CA. at is the current time.
func (p *Policy) Trusts(runner string, certs []*x509.Certificate, at time.Time) error {
	p.mu.Lock()
	trust := p.doc.Trust
	p.mu.Unlock()
	if trust == nil {
		return nil
	}
	key, named := credentials.KeyFingerprint(certs[0]), false
	for _, t := range trust {
		if !matches(t.Runners, runner) {
			continue
		}
		named = true
		if slices.Contains(t.Keys, key) || t.CA != "" && t.endorsed(runner, certs, at) {
			return nil
		}
	}
	if !named {
		return errors.New("the customer's policy names the Runners that it trusts (trust), and not this one")
	}
	return fmt.Errorf("its key, %s, is neither pinned by the customer's policy (trust) nor certified by the customer's CA", key)
}

// Pinned reports whether the policy pins a key of a Runner.
func (d Document) Pinned(runner, key string) bool {
	return slices.ContainsFunc(d.Trust, func(t Trust) bool { return matches(t.Runners, runner) && slices.Contains(t.Keys, key) })
}

// endorsed reports whether one of the certificates is for the Runner's key and name, and of the
// customer's CA. The name keeps a key that is certified for one Runner from being another's.
func (t Trust) endorsed(runner string, certs []*x509.Certificate, at time.Time) bool {
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(t.CA))
	for _, c := range certs[1:] {
		others.AddCert(c)
	}
	return slices.ContainsFunc(certs[1:], func(c *x509.Certificate) bool {
		if c.Subject.CommonName != runner || !bytes.Equal(c.RawSubjectPublicKeyInfo, certs[0].RawSubjectPublicKeyInfo) {
			return false
		}
		_, err := c.Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: others, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		return err == nil
	})
}

var keyPrint = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// trust looks for mistakes in what Runners prove themselves by.
func (c *checking) trust(trust []Trust) {
	if trust != nil && len(trust) == 0 {
		c.add("trust", "names nobody: leave it out, or set paused to keep all Runners out")
	}
	for i, t := range trust {
		at := fmt.Sprintf("trust[%d]", i)
		c.patterns(at+".runners", t.Runners)
		if len(t.Keys) == 0 && t.CA == "" {
			c.add(at, "needs keys or ca")
		}
		for j, key := range t.Keys {
			if !keyPrint.MatchString(key) {
				c.add(fmt.Sprintf("%s.keys[%d]", at, j), "%.100q is not a fingerprint such as `pipeops-runner credentials` prints: sha256: and 64 hexadecimal digits", key)
			}
		}
		if _, err := t.authorities(); err != nil {
			c.add(at+".ca", "%v", err)
		}
	}
}

// authorities returns the certificates of the customer's CA.
func (t Trust) authorities() (all []*x509.Certificate, err error) {
	for rest := []byte(strings.TrimSpace(t.CA)); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("has to be certificates in PEM, and nothing else")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("holds what is not a certificate")
		}
		if !cert.IsCA {
			return nil, fmt.Errorf("%.100q is not a certificate of a CA", cert.Subject)
		}
		all = append(all, cert)
	}
	return all, nil
}

// summary describes in lines by what Runners prove themselves.
func (t Trust) summary() (lines []string) {
	who := "all Runners"
	if t.Runners != nil {
		who = "Runners " + strings.Join(t.Runners, ", ")
	}
	for _, key := range t.Keys {
		lines = append(lines, "trust: "+who+" by key "+key)
	}
	all, _ := t.authorities() // Parse has tried it
	for _, ca := range all {
		lines = append(lines, fmt.Sprintf("trust: %s by CA %s, key %s, until %s", who, ca.Subject, credentials.KeyFingerprint(ca), ca.NotAfter.UTC().Format(time.RFC3339)))
	}
	return lines
}
