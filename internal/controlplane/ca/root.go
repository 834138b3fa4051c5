package ca

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// RootAwayError reports that the root CA's key is needed and was exported.
type RootAwayError struct{ For string }

func (e *RootAwayError) Error() string {
	return "the root CA's key was exported, and " + e.For + " needs it: " +
		"bring it back with `pipeops-controlplane ca root import FILE`, and export it again afterwards"
}

// RootAway reports whether the key of the root CA that signs is kept elsewhere.
func (c Roots) RootAway() bool { return c.state.Load().signing.key == nil }

// RootKeys returns the root CAs whose keys are here, each with its key, in PEM. It is empty if
// there are none.
func (c Roots) RootKeys() ([]byte, error) {
	var text bytes.Buffer
	s := c.state.Load()
	for _, a := range s.trustedNow() {
		if a.key == nil {
			continue
		}
		key, err := encodeKey(a.key)
		if err != nil {
			return nil, err
		}
		text.Write(encodeCert(a.cert.Raw))
		text.Write(key)
	}
	return text.Bytes(), nil
}

// ForgetRootKeys removes the root CAs' keys. Given is what RootKeys returned, read again from where
// it was stored: keys that are not in it stay, with an error.
func (c Roots) ForgetRootKeys(given []byte) error {
	stored, err := parseRoots(given)
	if err != nil {
		return err
	}
	return c.changeRoots(func(a *authority) error {
		if a.key != nil && keyOf(stored, a.cert) == nil {
			return fmt.Errorf("the key of %s is not among those that were stored; nothing was removed", a.cert.Subject.CommonName)
		}
		a.key = nil
		return nil
	})
}

// ImportRootKeys takes root CAs' keys back, as RootKeys returned them.
func (c Roots) ImportRootKeys(text []byte) error {
	given, err := parseRoots(text)
	if err != nil {
		return err
	}
	ours := func(a *authority) bool { return keyOf(given, a.cert) != nil }
	if !slices.ContainsFunc(c.state.Load().trustedNow(), ours) {
		return errors.New("it has no key of this control plane's root CA; `pipeops-controlplane ca get` lists the CAs")
	}
	return c.changeRoots(func(a *authority) error {
		if p := keyOf(given, a.cert); p != nil {
			a.key = p.key
		}
		return nil
	})
}

func keyOf(pairs []pair, cert *x509.Certificate) *pair {
	for i := range pairs {
		if pairs[i].cert.Equal(cert) {
			return &pairs[i]
		}
	}
	return nil
}

// changeRoots stores the CA with other keys of its roots.
func (c Roots) changeRoots(change func(*authority) error) error {
	s := c.state.Load()
	next := &state{stage: s.stage, signing: s.signing, cross: s.cross, former: s.former}
	if err := change(&next.signing); err != nil {
		return err
	}
	if s.other != nil {
		other := *s.other
		next.other = &other
		if err := change(next.other); err != nil {
			return err
		}
	}
	return c.replace(next)
}

// parseRoots decodes what RootKeys returned. Its errors quote none of it.
func parseRoots(text []byte) (roots []pair, err error) {
	for len(bytes.TrimSpace(text)) > 0 {
		var p pair
		if p, _, text, err = readPair(text); err != nil {
			return nil, err
		}
		if p.key == nil {
			return nil, errNoKey
		}
		roots = append(roots, p)
	}
	if len(roots) == 0 {
		return nil, errNoKey
	}
	return roots, nil
}
