package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
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
	signing authority
	other   *authority // the one beside it; nil when settled
	// cross holds the certificates of later CAs signed by the one before, the latest first. They
	// lead from any earlier CA to the current one.
	cross []*x509.Certificate
	// former holds the CAs whose keys are gone, the latest first.
	former []authority

	sum     [32]byte // the file's SHA-256
	bundle  []byte
	trusted *x509.CertPool // of root CAs
	// The intermediate CAs by role: those of the CAs trusted now, and of former ones, too.
	current, known map[string]*x509.CertPool
	issuers        map[string]issuer // the same, by their KeyID
	verified       verified          // by known
}

// issuer is an intermediate CA.
type issuer struct {
	role       string
	cert, root *x509.Certificate
	trusted    bool // now
}

// The file is the signing root CA's certificate and key in PEM, with its intermediate CAs. What a
// rotation adds follows, with its role in a header. A key follows its certificate; a root CA's may
// be kept elsewhere.
const (
	headerRole       = "Role"
	roleIntermediate = "intermediate" // of the root CA before it
	roleNext         = "next"
	rolePrevious     = "previous"
	roleCross        = "cross"
	roleFormer       = "former"

	typeCertificate = "CERTIFICATE"
	typeKey         = "PRIVATE KEY"
)

// trustedNow returns the CAs that are trusted now, the signing one first.
func (s *state) trustedNow() []*authority {
	if s.other == nil {
		return []*authority{&s.signing}
	}
	return []*authority{&s.signing, s.other}
}

// complete computes the derived fields.
func (s *state) complete() *state {
	s.current, s.known, s.issuers = map[string]*x509.CertPool{}, map[string]*x509.CertPool{}, map[string]issuer{}
	for _, role := range leafRoles {
		s.current[role], s.known[role] = x509.NewCertPool(), x509.NewCertPool()
	}
	trusted := make([]*x509.Certificate, 0, 2)
	for _, a := range s.trustedNow() {
		trusted = append(trusted, a.cert)
		s.know(a, true)
	}
	for i := range s.former {
		s.know(&s.former[i], false)
	}
	if s.stage == Signing { // the same order in both stages: agents identify bundles by their text
		slices.Reverse(trusted)
	}
	s.bundle, s.trusted = encodeCerts(trusted), poolOf(trusted)
	return s
}

// know adds a CA's intermediates to those whose certificates are recognized.
func (s *state) know(a *authority, trusted bool) {
	for _, i := range a.intermediates {
		role := trustanchor.RoleOf(i.cert)
		s.issuers[KeyID(i.cert)] = issuer{role: role, cert: i.cert, root: a.cert, trusted: trusted}
		s.known[role].AddCert(i.cert)
		if trusted {
			s.current[role].AddCert(i.cert)
		}
	}
}

// issuerOf returns the intermediate CA of a certificate that was verified before.
func (s *state) issuerOf(cert *x509.Certificate) issuer { return s.issuers[IssuerID(cert)] }

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// chain returns what accompanies certificates of an intermediate CA: the CA, and the path to it for
// peers that know only an earlier root.
func (s *state) chain(signer pair) []*x509.Certificate {
	return append([]*x509.Certificate{signer.cert}, s.cross...)
}

// anchors returns the root CAs from which the chain starts. A peer with only a fingerprint finds
// its CA there.
func (s *state) anchors() []*x509.Certificate {
	found := []*x509.Certificate{s.signing.cert}
	known := certsOf(s.former)
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

func certsOf(all []authority) []*x509.Certificate {
	certs := make([]*x509.Certificate, len(all))
	for i, a := range all {
		certs[i] = a.cert
	}
	return certs
}

func (s *state) encode() ([]byte, error) {
	var text bytes.Buffer
	if err := s.signing.encode(&text, ""); err != nil {
		return nil, err
	}
	if s.other != nil {
		role := roleNext
		if s.stage == Signing {
			role = rolePrevious
		}
		if err := s.other.encode(&text, role); err != nil {
			return nil, err
		}
	}
	for _, c := range s.cross {
		text.Write(encodeAs(c, roleCross))
	}
	for _, a := range s.former {
		if err := a.encode(&text, roleFormer); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// encode writes a root CA and its intermediate CAs.
func (a *authority) encode(text *bytes.Buffer, role string) error {
	if err := a.pair.encode(text, role); err != nil {
		return err
	}
	for _, i := range a.intermediates {
		if err := i.encode(text, roleIntermediate); err != nil {
			return err
		}
	}
	return nil
}

func (p pair) encode(text *bytes.Buffer, role string) error {
	text.Write(encodeAs(p.cert, role))
	if p.key == nil {
		return nil
	}
	key, err := encodeKey(p.key)
	text.Write(key)
	return err
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

var (
	errNoKey = errors.New("it holds no key")
	errOrder = errors.New("it does not begin with the CA that signs")
)

// parse decodes what encode wrote. Its errors quote none of it.
func parse(text []byte) (*state, error) {
	s := &state{stage: Settled}
	for first := true; first || len(bytes.TrimSpace(text)) > 0; first = false {
		p, role, rest, err := readPair(text)
		if err != nil {
			return nil, err
		}
		if first != (role == "") {
			return nil, errOrder
		}
		if err := s.add(p, role); err != nil {
			return nil, err
		}
		text = rest
	}
	return s.complete(), nil
}

// add adds the next part of the file.
func (s *state) add(p pair, role string) error {
	if (role == roleCross || role == roleFormer) && p.key != nil {
		return errors.New("it holds a key where none should be")
	}
	switch role {
	case "":
		s.signing.pair = p
	case roleIntermediate:
		return s.addIntermediate(p)
	case roleCross:
		s.cross = append(s.cross, p.cert)
	case roleFormer:
		s.former = append(s.former, authority{pair: p})
	case roleNext, rolePrevious:
		if s.other != nil || len(s.former) > 0 {
			return errors.New("it holds more than two CAs")
		}
		if s.other, s.stage = (&authority{pair: p}), Introduced; role == rolePrevious {
			s.stage = Signing
		}
	default:
		return errors.New("it holds a certificate of a kind that this version does not know")
	}
	return nil
}

// addIntermediate adds an intermediate CA to the root CA before it.
func (s *state) addIntermediate(p pair) error {
	of := &s.signing
	switch {
	case len(s.former) > 0:
		of = &s.former[len(s.former)-1]
	case s.other != nil:
		of = s.other
	}
	if !slices.Contains(leafRoles, trustanchor.RoleOf(p.cert)) || !issued(of.cert, p.cert) {
		return errors.New("it holds an intermediate CA that is not of the CA before it")
	}
	of.intermediates = append(of.intermediates, p)
	return nil
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
		return nil, "", nil, errors.New("it holds a certificate that is not a CA's")
	}
	return cert, block.Headers[headerRole], rest, nil
}

// readPair reads a certificate, and the key that may follow it.
func readPair(text []byte) (pair, string, []byte, error) {
	cert, role, rest, err := readCert(text)
	if err != nil {
		return pair{}, "", nil, err
	}
	block, after := pem.Decode(rest)
	if block == nil || block.Type != typeKey {
		return pair{cert: cert}, role, rest, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return pair{}, "", nil, errors.New("its key cannot be read")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return pair{}, "", nil, errors.New("its key and certificate do not belong together")
	}
	return pair{cert, key}, role, after, nil
}
