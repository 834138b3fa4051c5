// Package ca is the control plane's certificate authority. It is created at the first start, stored
// as a whole in one place, and issues the certificates of agents, Runners, operators and the
// control plane itself. A root CA signs one intermediate CA for each of these roles, and nothing
// else; its key can be kept elsewhere (root.go). The CA can be replaced step by step while it works
// (rotate.go). Its callers decide who may have a certificate, and when the next step may be taken.
package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"sync/atomic"
	"time"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour
	// backdate lets a peer whose clock is behind verify the chain. The peer can then learn from the
	// other side that its clock is wrong.
	backdate = 24 * time.Hour
)

// CA issues certificates. It is safe for concurrent use, also while it is rotated.
type CA struct {
	*core
	Trust
	Issuer
	Rotation
	Roots
}

type (
	// Trust verifies certificates, and returns what others need to verify them.
	Trust struct{ *core }
	// Issuer signs certificates.
	Issuer struct{ *core }
	// Rotation replaces the root CA by another, step by step.
	Rotation struct{ *core }
	// Roots exports and imports the keys of the root CAs.
	Roots struct{ *core }
)

// core is the present state, where it is stored, and the log.
type core struct {
	keep    Keeper
	domains Domains
	log     Log
	now     func() time.Time
	state   atomic.Pointer[state]
}

// pair is a CA's certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Keeper is where a CA is stored, all of it in one text, keys included.
type Keeper interface {
	// Load returns fs.ErrNotExist while there is none.
	Load() (text []byte, err error)
	// Make stores the first CA. It leaves an existing one unchanged.
	Make(text []byte) error
	// Replace replaces the CA that Load returned last, atomically.
	Replace(text []byte) error
	// String describes that place to users.
	String() string
}

// Open reads the CA from that file, or creates one there. Several processes that create it at the
// same time end up with the same CA. Open also accepts an expired CA, since rotating it is the
// solution; see Ended.
func Open(file string, domains Domains, log Log, now func() time.Time) (*CA, error) {
	return OpenIn(inFile(file), domains, log, now)
}

// OpenIn is like Open for a CA that is stored elsewhere.
func OpenIn(keep Keeper, domains Domains, log Log, now func() time.Time) (*CA, error) {
	core := &core{keep: keep, domains: domains, log: log, now: now}
	c := &CA{core, Trust{core}, Issuer{core}, Rotation{core}, Roots{core}}
	err := c.load()
	if errors.Is(err, fs.ErrNotExist) {
		if err = c.create(); err == nil {
			err = c.load()
		}
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Ended returns an error if the signing CA, or an intermediate CA of it, has expired: its
// certificates are then useless.
func (c *CA) Ended() error {
	cert := c.state.Load().signing.cert
	if !c.now().After(cert.NotAfter) {
		if c.now().Before(c.IntermediatesEnd()) {
			return nil
		}
		if _, err := c.UpkeepDue(); err != nil {
			return fmt.Errorf("certificate authority %s: %w", c.keep, err)
		}
		return nil // it is replaced in a moment
	}
	return fmt.Errorf("certificate authority %s ended at %s; set this machine's clock if that is wrong, or replace it: "+
		"`pipeops-controlplane ca rotate start`, then `sign --force` and `finish --force`; agents come back by themselves",
		c.keep, cert.NotAfter.Format(time.RFC3339))
}

// create makes the first CA.
func (c *core) create() error {
	first, err := generate(c.domains, c.now())
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	if err := c.recordAll(first, reasonFirstCA); err != nil {
		return err
	}
	text, err := (&state{signing: first}).encode()
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	return c.keep.Make(text)
}

// generate creates a self-signed CA with its intermediate CAs.
func generate(domains Domains, now time.Time) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return authority{}, err
	}
	cert, err := certify(&x509.Certificate{
		SerialNumber: serial, MaxPathLen: -1,
		Subject:   pkix.Name{CommonName: "PipeOps control plane CA " + serial.Text(16)[:8], Organization: []string{"PipeOps"}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
	}, nil, pair{key: key})
	if err != nil {
		return authority{}, err
	}
	root := authority{pair: pair{cert, key}}
	return root.renewed(leafRoles, domains, now)
}

// recordAll records a new CA's own certificate and those of its intermediate CAs.
func (c *core) recordAll(a authority, reason string) error {
	if err := c.record(a.cert, reason); err != nil {
		return err
	}
	for _, i := range a.intermediates {
		if err := c.record(i.cert, reason); err != nil {
			return err
		}
	}
	return nil
}

// certify signs a CA's certificate, with its own key if parent is nil. A root CA does not limit how
// many CAs may follow, because each rotation adds one.
func certify(template, parent *x509.Certificate, by pair) (*x509.Certificate, error) {
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	public := template.PublicKey
	if parent == nil {
		parent, public = template, by.key.Public()
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Certificate returns the certificate of the signing root CA.
func (c Trust) Certificate() *x509.Certificate { return c.state.Load().signing.cert }

// Anchor returns the CA from which new peers start. While two CAs are trusted, it is the older one.
// That one is valid in every outcome of the rotation, since it signs the new one.
func (c Trust) Anchor() *x509.Certificate {
	s := c.state.Load()
	if s.stage == Signing {
		return s.other.cert
	}
	return s.signing.cert
}

// Bundle returns the CAs that peers trust, in PEM: one, or two during a rotation.
func (c Trust) Bundle() []byte { return c.state.Load().bundle }

// Former returns the CAs that were trusted once, in PEM. Their keys are gone.
func (c Trust) Former() []byte { return encodeCerts(certsOf(c.state.Load().former)) }

// PoolFor returns the intermediate CAs that are trusted for a role now. With it as roots, TLS
// admits certificates of that role alone, and verifies one signature.
func (c Trust) PoolFor(role string) *x509.CertPool {
	if pool := c.state.Load().current[role]; pool != nil {
		return pool
	}
	return x509.NewCertPool()
}

// Pool returns the root CAs that are trusted now.
func (c Trust) Pool() *x509.CertPool { return c.state.Load().trusted }

// Verify checks that the certificate was issued here for a client of its role, by the current CA or
// an earlier one, and is valid at that time. A certificate of a former CA needs further checks: see
// Trusted.
func (c Trust) Verify(cert *x509.Certificate, at time.Time) error {
	s := c.state.Load()
	if s.verified.has(cert, at) {
		return nil
	}
	role, _ := roleOf(cert)
	roots := s.known[role]
	if roots == nil {
		return fmt.Errorf("certificates have no role %.20q", role)
	}
	chains, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err == nil {
		s.verified.add(cert, spanOf(chains[0]))
	}
	return err
}

// Took records the chains that TLS has verified of a client with PoolFor. Verify need not verify
// them again: the signature is the largest cost of a handshake. Took ignores chains that do not
// begin with an intermediate CA of the certificate's role, since the CA may have been replaced
// meanwhile.
func (c Trust) Took(chains [][]*x509.Certificate) {
	s := c.state.Load()
	for _, chain := range chains {
		if len(chain) > 1 && s.signed(chain[1], chain[0]) {
			s.verified.add(chain[0], spanOf(chain))
			return
		}
	}
}

// signed reports whether by is an intermediate CA of ours, for the role of a certificate that it
// has signed.
func (s *state) signed(by, cert *x509.Certificate) bool {
	role, _ := roleOf(cert)
	i, ok := s.issuers[KeyID(by)]
	return ok && i.role == role && i.cert.Equal(by)
}

// Trusted reports whether a certificate that Verify accepts was issued by a CA that is trusted now.
func (c Trust) Trusted(cert *x509.Certificate) bool { return c.state.Load().issuerOf(cert).trusted }

// Current reports whether a certificate that Verify accepts was issued by the intermediate CA that
// signs for its role now.
func (c Trust) Current(cert *x509.Certificate) bool {
	role, _ := roleOf(cert)
	signer := c.state.Load().signing.signer(role, c.now())
	return signer.cert != nil && issued(signer.cert, cert)
}

// SignerID returns the KeyID of the intermediate CA that signs for a role now.
func (c Trust) SignerID(role string) string {
	if signer := c.state.Load().signing.signer(role, c.now()); signer.cert != nil {
		return KeyID(signer.cert)
	}
	return ""
}

// RootID returns the KeyID of the root CA above a certificate that Verify accepts.
func (c Trust) RootID(cert *x509.Certificate) string {
	if root := c.state.Load().issuerOf(cert).root; root != nil {
		return KeyID(root)
	}
	return ""
}

// issued reports whether ca issued a certificate that was verified before.
func issued(ca, cert *x509.Certificate) bool {
	return bytes.Equal(ca.SubjectKeyId, cert.AuthorityKeyId)
}

// newSerial returns 127 random bits, which are unique without a register of issued serials.
func newSerial() (*big.Int, error) {
	limit := new(big.Int).Lsh(big.NewInt(1), 126)
	n, err := rand.Int(rand.Reader, limit)
	if err != nil {
		return nil, err
	}
	return n.Add(n, limit), nil
}

// ParseCertificate decodes one certificate in PEM and ignores what follows it.
func ParseCertificate(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode(bytes.TrimSpace([]byte(text)))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("not a certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// KeyID returns the ID of a CA's key.
func KeyID(ca *x509.Certificate) string { return hex.EncodeToString(ca.SubjectKeyId) }

// IssuerID returns the KeyID of the CA that issued a certificate.
func IssuerID(cert *x509.Certificate) string { return hex.EncodeToString(cert.AuthorityKeyId) }
