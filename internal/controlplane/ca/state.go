package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// Stage is a stage of a rotation.
type Stage string

// The stages of a rotation, in order.
const (
	// Settled: there is one CA.
	Settled Stage = "settled"
	// Introduced: a new CA is trusted beside it, and has signed nothing yet.
	Introduced Stage = "introduced"
	// Signing: the new CA signs, and the old one is still trusted.
	Signing Stage = "signing"
)

// state is the whole content of the CA's file. It is replaced as a whole, so that no step of a
// rotation is ever half done.
type state struct {
	stage   Stage
	signing pair
	other   *pair // the one beside it; nil when settled
	// cross holds the certificates of later CAs signed by the one before, the latest first. They
	// lead from any earlier CA to the current one.
	cross []*x509.Certificate
	// former holds the CAs whose keys are gone, the latest first.
	former []*x509.Certificate

	sum            [32]byte // the file's SHA-256
	bundle         []byte
	trusted, known *x509.CertPool
	verified       verified // by known
}

// The file is a CA's certificate and key in PEM, as it always was. What a rotation adds follows,
// with its role in a header. The first pair signs.
const (
	headerRole   = "Role"
	roleNext     = "next"
	rolePrevious = "previous"
	roleCross    = "cross"
	roleFormer   = "former"

	typeCertificate = "CERTIFICATE"
	typeKey         = "PRIVATE KEY"
)

// complete computes the derived fields.
func (s *state) complete() *state {
	trusted := []*x509.Certificate{s.signing.cert}
	if s.other != nil {
		trusted = append(trusted, s.other.cert)
	}
	if s.stage == Signing { // the same order in both stages: agents identify bundles by their text
		slices.Reverse(trusted)
	}
	s.bundle = encodeCerts(trusted)
	s.trusted, s.known = poolOf(trusted), poolOf(slices.Concat(trusted, s.former))
	return s
}

// knows reports whether that is the certificate of a current or former CA.
func (s *state) knows(ca *x509.Certificate) bool {
	return s.signing.cert.Equal(ca) || s.other != nil && s.other.cert.Equal(ca) || slices.ContainsFunc(s.former, ca.Equal)
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// chain returns what accompanies issued certificates: the CA, and the path to it for peers that
// know only an earlier one.
func (s *state) chain() []*x509.Certificate {
	return append([]*x509.Certificate{s.signing.cert}, s.cross...)
}

// anchors returns the CAs from which the chain starts. A peer with only a fingerprint finds its CA
// there.
func (s *state) anchors() []*x509.Certificate {
	var found []*x509.Certificate
	known := s.former
	if s.other != nil {
		known = append([]*x509.Certificate{s.other.cert}, known...)
	}
	for _, c := range known {
		if slices.ContainsFunc(s.cross, func(x *x509.Certificate) bool { return issued(c, x) }) {
			found = append(found, c)
		}
	}
	return found
}

func (s *state) encode() ([]byte, error) {
	var text bytes.Buffer
	put := func(p pair, role string) error {
		key, err := encodeKey(p.key)
		text.Write(encodeAs(p.cert, role))
		text.Write(key)
		return err
	}
	if err := put(s.signing, ""); err != nil {
		return nil, err
	}
	if s.other != nil {
		role := roleNext
		if s.stage == Signing {
			role = rolePrevious
		}
		if err := put(*s.other, role); err != nil {
			return nil, err
		}
	}
	for _, c := range s.cross {
		text.Write(encodeAs(c, roleCross))
	}
	for _, c := range s.former {
		text.Write(encodeAs(c, roleFormer))
	}
	return text.Bytes(), nil
}

func encodeAs(cert *x509.Certificate, role string) []byte {
	block := &pem.Block{Type: typeCertificate, Bytes: cert.Raw}
	if role != "" {
		block.Headers = map[string]string{headerRole: role}
	}
	return pem.EncodeToMemory(block)
}

func encodeCerts(certs []*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, c := range certs {
		text.Write(encodeCert(c.Raw))
	}
	return text.Bytes()
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: typeKey, Bytes: der}), nil
}

// parse decodes what encode wrote. Its errors quote none of it.
func parse(text []byte) (*state, error) {
	s := &state{stage: Settled}
	var err error
	var role string
	if s.signing, role, text, err = readPair(text); err != nil {
		return nil, err
	}
	if role != "" {
		return nil, errors.New("it does not begin with the CA that signs")
	}
	for len(bytes.TrimSpace(text)) > 0 {
		if text, err = s.readMore(text); err != nil {
			return nil, err
		}
	}
	return s.complete(), nil
}

// readMore adds the next part of the file to s.
func (s *state) readMore(text []byte) (rest []byte, err error) {
	cert, role, rest, err := readCert(text)
	if err != nil {
		return nil, err
	}
	switch role {
	case roleCross:
		s.cross = append(s.cross, cert)
	case roleFormer:
		s.former = append(s.former, cert)
	case roleNext, rolePrevious:
		if s.other != nil {
			return nil, errors.New("it holds more than two keys")
		}
		other, _, rest, err := readPair(text)
		if err != nil {
			return nil, err
		}
		if s.other, s.stage = &other, Introduced; role == rolePrevious {
			s.stage = Signing
		}
		return rest, nil
	default:
		return nil, fmt.Errorf("it holds a certificate of a kind that this version does not know")
	}
	return rest, nil
}

func readCert(text []byte) (*x509.Certificate, string, []byte, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != typeCertificate {
		return nil, "", nil, errors.New("it holds no certificate where one should be")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, "", nil, err
	}
	if !cert.IsCA {
		return nil, "", nil, errors.New("it holds a certificate that is no CA's")
	}
	return cert, block.Headers[headerRole], rest, nil
}

func readPair(text []byte) (pair, string, []byte, error) {
	cert, role, rest, err := readCert(text)
	if err != nil {
		return pair{}, "", nil, err
	}
	block, rest := pem.Decode(rest)
	if block == nil || block.Type != typeKey {
		return pair{}, "", nil, errors.New("it holds no key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return pair{}, "", nil, errors.New("its key cannot be read")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return pair{}, "", nil, errors.New("its key and certificate do not belong together")
	}
	return pair{cert, key}, role, rest, nil
}
