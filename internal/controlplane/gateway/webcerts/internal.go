package webcerts

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

const (
	rootName  = "internal/root.pem"
	rootLock  = "internal-root"
	rootYears = 10
	// leafLife is how long a certificate of the gateway's own CA is valid.
	leafLife = 30 * 24 * time.Hour
	backdate = time.Hour // for clients whose clocks are behind
)

// Internal is a CA of the gateway's own, for places without internet. Its root is in the storage.
type Internal struct {
	Storage *Storage
	Now     func() time.Time

	mu   sync.Mutex
	root *rootCA
}

type rootCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var _ certmagic.Issuer = (*Internal)(nil)

// IssuerKey implements certmagic.Issuer.
func (*Internal) IssuerKey() string { return "internal" }

// Root returns the root's certificate in PEM, and makes the root if there is none.
func (i *Internal) Root(ctx context.Context) ([]byte, error) {
	root, err := i.load(ctx)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: root.cert.Raw}), nil
}

// Issue implements certmagic.Issuer.
func (i *Internal) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if err := csr.CheckSignature(); err != nil {
		return nil, err
	}
	root, err := i.load(ctx)
	if err != nil {
		return nil, err
	}
	now := i.Now()
	leaf := &x509.Certificate{
		DNSNames: csr.DNSNames, NotBefore: now.Add(-backdate), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, root.cert, csr.PublicKey, root.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})}, nil
}

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

func (i *Internal) load(ctx context.Context) (*rootCA, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.root != nil {
		return i.root, nil
	}
	text, err := i.Storage.Load(ctx, rootName)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = i.first(ctx)
	}
	if err != nil {
		return nil, err
	}
	i.root, err = parseRoot(text)
	return i.root, err
}

// first makes the root, unless another gateway was faster.
func (i *Internal) first(ctx context.Context) (text []byte, err error) {
	if err := i.Storage.Lock(ctx, rootLock); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, i.Storage.Unlock(ctx, rootLock)) }()
	text, err = i.Storage.Load(ctx, rootName)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	if text, err = makeRoot(i.Now()); err != nil {
		return nil, err
	}
	return text, i.Storage.Store(ctx, rootName, text)
}

func makeRoot(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	root := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "PipeOps gateway " + now.UTC().Format(time.DateOnly)},
		NotBefore: now.Add(-backdate), NotAfter: now.AddDate(rootYears, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: secret})...), nil
}

func parseRoot(text []byte) (*rootCA, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, fmt.Errorf("the gateway's CA in the database is damaged: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the gateway's CA in the database is damaged: its key is not ECDSA")
	}
	return &rootCA{pair.Leaf, key}, nil
}
