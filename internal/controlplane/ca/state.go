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

// Stage is how far a rotation has come.
type Stage string

// The stages of a rotation, in their order.
const (
	// Settled: there is one CA.
	Settled Stage = "settled"
	// Introduced: a new one is trusted beside it, and has signed nothing yet.
	Introduced Stage = "introduced"
	// Signing: the new one signs, and the old one is trusted still.
	Signing Stage = "signing"
)

// state is all that the CA's file holds, which is replaced as a whole, so that no
// step of a rotation is ever half done.
type state struct {
	stage   Stage
	signing pair
	other   *pair // the one beside it; nil when settled
	// cross are the certificates of later CAs by the one before, the latest first:
	// the way from any CA that ever was to the one of now.
	cross []*x509.Certificate
	// former are the CAs whose keys are gone, the latest first.
	former []*x509.Certificate

	sum            [32]byte // the file's SHA-256
	bundle         []byte
	trusted, known *x509.CertPool
	verified       verified // by known
}

// The file is a CA's certificate and key in PEM, as it always was, and what a
// rotation adds comes after, with its part in a header. The first pair signs.
const (
	headerRole   = "Role"
	roleNext     = "next"
	rolePrevious = "previous"
	roleCross    = "cross"
	roleFormer   = "former"

	typeCertificate = "CERTIFICATE"
	typeKey         = "PRIVATE KEY"
)

// complete fills in what follows from the rest.
func (s *state) complete() *state {
	trusted := []*x509.Certificate{s.signing.cert}
	if s.other != nil {
		trusted = append(trusted, s.other.cert)
	}
	if s.stage == Signing { // the same order in both stages: agents tell bundles apart by their text
		slices.Reverse(trusted)
	}
	s.bundle = encodeCerts(trusted)
	s.trusted, s.known = poolOf(trusted), poolOf(slices.Concat(trusted, s.former))
	return s
}

// knows says whether that is the certificate of a CA of now or before.
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

// chain goes with what is issued: the CA, and how whoever knows only one before it
// gets there.
func (s *state) chain() []*x509.Certificate {
	return append([]*x509.Certificate{s.signing.cert}, s.cross...)
}

// anchors are the CAs that the chain starts from: whoever holds only a fingerprint
// finds them there.
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

// parse reads what encode wrote. Its errors quote nothing of it.
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

// readMore takes what comes next in the file into s.
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
