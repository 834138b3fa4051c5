// Package ca is the control plane's certificate authority: it is made at first
// start, kept as a whole in one place, and issues the certificates of agents, Runners and the
// control plane itself. It can be replaced step by step while it works (rotate.go).
// Who may have a certificate, and when the next step may be taken, is not decided
// here.
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
	// backdate lets a peer whose clock is behind verify the chain, and so be told
	// in words that its clock is wrong.
	backdate = 24 * time.Hour
)

// CA issues certificates. It may be used by several goroutines while it is rotated.
type CA struct {
	keep  Keeper
	now   func() time.Time
	state atomic.Pointer[state]
}

// pair is a CA's certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Keeper is where a CA is kept: all of it in one text, keys included.
type Keeper interface {
	// Load answers fs.ErrNotExist while there is none.
	Load() (text []byte, err error)
	// Make puts the first one there; when there is one by then, it is left as it is.
	Make(text []byte) error
	// Replace puts one in the place of the one that Load answered last, all of it or
	// nothing.
	Replace(text []byte) error
	// String says to people where that is.
	String() string
}

// Open reads the CA from that file, or makes a new one there. When several
// processes make it at a time they end up with the same one. One that has ended is
// opened as well, since rotating it is the way out; see Ended.
func Open(file string, now func() time.Time) (*CA, error) { return OpenIn(inFile(file), now) }

// OpenIn is Open for a CA that is kept elsewhere.
func OpenIn(keep Keeper, now func() time.Time) (*CA, error) {
	c := &CA{keep: keep, now: now}
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

// Ended is an error when the CA that signs has ended: nothing that it issues is
// worth anything.
func (c *CA) Ended() error {
	cert := c.state.Load().signing.cert
	if !c.now().After(cert.NotAfter) {
		return nil
	}
	return fmt.Errorf("certificate authority %s ended at %s; set this machine's clock if that is wrong, or replace it: "+
		"`pipeops-controlplane ca rotate start`, then `sign --force` and `finish --force`; agents come back by themselves",
		c.keep, cert.NotAfter.Format(time.RFC3339))
}

// create makes the first CA.
func (c *CA) create() error {
	first, err := generate(c.now())
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	text, err := (&state{signing: first}).encode()
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	return c.keep.Make(text)
}

// generate makes a CA that signs itself.
func generate(now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return pair{}, err
	}
	cert, err := certify(&x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "PipeOps control plane CA " + serial.Text(16)[:8], Organization: []string{"PipeOps"}},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(lifetime),
	}, nil, pair{key: key})
	return pair{cert, key}, err
}

// certify signs a CA's certificate, with its own key when parent is nil. How many
// CAs may follow it is left open: each rotation adds one.
func certify(template, parent *x509.Certificate, by pair) (*x509.Certificate, error) {
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLen = true, true, -1
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

// Certificate is that of the CA which signs.
func (c *CA) Certificate() *x509.Certificate { return c.state.Load().signing.cert }

// Anchor is the CA that whoever comes anew starts from. While two are trusted it
// is the older one: it is good for whatever becomes of the rotation, since the new
// one is signed by it.
func (c *CA) Anchor() *x509.Certificate {
	s := c.state.Load()
	if s.stage == Signing {
		return s.other.cert
	}
	return s.signing.cert
}

// Bundle is in PEM what peers trust: the CA, or two while it is rotated.
func (c *CA) Bundle() []byte { return c.state.Load().bundle }

// Former are in PEM the CAs that were trusted once. Their keys are gone.
func (c *CA) Former() []byte { return encodeCerts(c.state.Load().former) }

// Pool holds the CAs that are trusted now.
func (c *CA) Pool() *x509.CertPool { return c.state.Load().trusted }

// Verify checks that the certificate was issued here, by the CA of now or one
// before it, for clients, and is valid at that time. Whoever holds one of a former
// CA is to be told apart by more than that: see Trusted.
func (c *CA) Verify(cert *x509.Certificate, at time.Time) error {
	s := c.state.Load()
	if s.verified.has(cert, at) {
		return nil
	}
	chains, err := cert.Verify(x509.VerifyOptions{Roots: s.known, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err == nil {
		s.verified.add(cert, spanOf(chains[0]))
	}
	return err
}

// Took is told what TLS has verified of a client, with Pool: its certificate's chains. Verify need not do that
// again, whose signature is what a handshake costs most of. What does not end at a CA of now or before it is left
// aside, since the CA may have been replaced meanwhile.
func (c *CA) Took(chains [][]*x509.Certificate) {
	s := c.state.Load()
	for _, chain := range chains {
		if len(chain) > 1 && s.knows(chain[len(chain)-1]) {
			s.verified.add(chain[0], spanOf(chain))
			return
		}
	}
}

// Trusted says whether a certificate that Verify takes was issued by a CA of now.
func (c *CA) Trusted(cert *x509.Certificate) bool {
	s := c.state.Load()
	return issued(s.signing.cert, cert) || s.other != nil && issued(s.other.cert, cert)
}

// Current says whether a certificate that Verify takes was issued by the CA that
// signs now.
func (c *CA) Current(cert *x509.Certificate) bool { return issued(c.Certificate(), cert) }

// issued says whose a certificate is that was verified before.
func issued(ca, cert *x509.Certificate) bool {
	return bytes.Equal(ca.SubjectKeyId, cert.AuthorityKeyId)
}

// newSerial is 127 random bits: unique without a register of what was issued.
func newSerial() (*big.Int, error) {
	limit := new(big.Int).Lsh(big.NewInt(1), 126)
	n, err := rand.Int(rand.Reader, limit)
	if err != nil {
		return nil, err
	}
	return n.Add(n, limit), nil
}

// ParseCertificate reads one certificate in PEM; what follows it is left aside.
func ParseCertificate(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode(bytes.TrimSpace([]byte(text)))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("not a certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// KeyID names a CA by its key.
func KeyID(ca *x509.Certificate) string { return hex.EncodeToString(ca.SubjectKeyId) }

// IssuerID is the KeyID of the CA that issued a certificate.
func IssuerID(cert *x509.Certificate) string { return hex.EncodeToString(cert.AuthorityKeyId) }
