// Package ca is the control plane's certificate authority: it is made at first
// start, kept in one file, and issues the certificates of agents, Runners and the
// control plane itself. Who may have one is not decided here.
package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour
	// backdate lets a peer whose clock is behind verify the chain, and so be told
	// in words that its clock is wrong.
	backdate = 24 * time.Hour
	maxFile  = 64 << 10
)

// CA issues certificates.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
	now  func() time.Time
}

// Open reads the CA from that file, or makes a new one there. When several
// processes make it at a time they end up with the same one.
func Open(file string, now func() time.Time) (*CA, error) {
	text, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(file, now()); err == nil {
			text, err = read(file)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	cert, key, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w; restore it from a backup (a new one would lock out all agents)", file, err)
	}
	if now().After(cert.NotAfter) {
		return nil, fmt.Errorf("certificate authority %s ended at %s; set this machine's clock if that is wrong, or move the data directory away and register all agents anew",
			file, cert.NotAfter.Format(time.RFC3339))
	}
	return &CA{cert: cert, key: key, now: now}, nil
}

func read(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s can be read by others: run `chmod 600 %s`", file, file)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is no certificate authority: it is too large", file)
	}
	return os.ReadFile(file)
}

// create puts certificate and key in one file, so that there is never one without
// the other, and links it into place, so that the first of several wins.
func create(file string, now time.Time) error {
	text, err := generate(now)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".ca-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func generate(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "PipeOps control plane CA " + serial.Text(16)[:8], Organization: []string{"PipeOps"}},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	return append(encodeCert(der), keyPEM...), err
}

func parse(text []byte) (*x509.Certificate, crypto.Signer, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, errors.New("it holds no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	if block, _ = pem.Decode(rest); block == nil || block.Type != "PRIVATE KEY" {
		return nil, nil, errors.New("it holds no key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, errors.New("its key cannot be read")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) || !cert.IsCA {
		return nil, nil, errors.New("its key and certificate do not belong together")
	}
	return cert, key, nil
}

// Certificate is the CA's own.
func (c *CA) Certificate() *x509.Certificate { return c.cert }

// Bundle is the CA's certificate in PEM: what peers trust.
func (c *CA) Bundle() []byte { return encodeCert(c.cert.Raw) }

// Pool holds the CA's certificate.
func (c *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// Verify checks that the certificate was issued here, for clients, and is valid
// at that time.
func (c *CA) Verify(cert *x509.Certificate, at time.Time) error {
	_, err := cert.Verify(x509.VerifyOptions{Roots: c.Pool(), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
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

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseCertificate reads one certificate in PEM; what follows it is left aside.
func ParseCertificate(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode(bytes.TrimSpace([]byte(text)))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("not a certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}
