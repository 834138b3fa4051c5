// Package sigstoretest is a stand-in for Sigstore, for tests of keyless signatures: Fulcio, Rekor
// and an authority for timestamps, to which clients talk over HTTP.
package sigstoretest

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"
	"github.com/go-openapi/runtime"
	ct "github.com/google/certificate-transparency-go"
	cttls "github.com/google/certificate-transparency-go/tls"
	ctx509 "github.com/google/certificate-transparency-go/x509"
	bundlepb "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/rekor/pkg/generated/models"
	"github.com/sigstore/rekor/pkg/types"
	_ "github.com/sigstore/rekor/pkg/types/dsse/v0.0.1"         // what cosign logs of bundles
	_ "github.com/sigstore/rekor/pkg/types/hashedrekord/v0.0.1" // and of payloads
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
)

// Sigstore believes each token. Its log has sigstore-go's keys, and each entry is a log of its own.
type Sigstore struct {
	URL    string
	t      *testing.T
	server *httptest.Server
	log    *ca.VirtualSigstore

	rootCert, issuer, stamper *x509.Certificate
	stampIssuer               *x509.Certificate
	issuerKey, stampKey       *ecdsa.PrivateKey
	ctKey                     *ecdsa.PrivateKey

	WithSCT bool          // certificates have a timestamp of the CT log
	Late    time.Duration // how much later than the certificates entries are logged
	NoTime  bool          // entries have a proof, and no signed time
}

// New returns a Sigstore that ends with the test.
func New(t *testing.T) *Sigstore {
	t.Helper()
	s := &Sigstore{t: t}
	var err error
	s.log, err = ca.NewVirtualSigstore()
	require.NoError(t, err)
	var rootKey *ecdsa.PrivateKey
	s.rootCert, rootKey, err = ca.GenerateRootCa()
	require.NoError(t, err)
	s.issuer, s.issuerKey, err = ca.GenerateFulcioIntermediate(s.rootCert, rootKey)
	require.NoError(t, err)
	stampIssuer, stampIssuerKey, err := ca.GenerateTSAIntermediate(s.rootCert, rootKey)
	require.NoError(t, err)
	s.stampKey, s.ctKey = newKey(t), newKey(t)
	s.stamper, err = ca.GenerateTSALeafCert(time.Now().Add(-time.Minute), s.stampKey, stampIssuer, stampIssuerKey)
	require.NoError(t, err)
	s.stampIssuer = stampIssuer
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v2/signingCert", s.certify)
	mux.HandleFunc("POST /api/v1/log/entries", s.enter)
	mux.HandleFunc("POST /api/v1/timestamp", s.stamp)
	s.server = httptest.NewServer(mux)
	s.URL = s.server.URL
	t.Cleanup(s.server.Close)
	return s
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// TrustedRoot returns the trusted_root.json.
func (s *Sigstore) TrustedRoot() string {
	s.t.Helper()
	ctLogs := map[string]*root.TransparencyLog{}
	if s.WithSCT {
		id := keyID(s.t, s.ctKey.Public())
		ctLogs[hex.EncodeToString(id[:])] = &root.TransparencyLog{
			BaseURL: "https://ct.localhost", ID: id[:], ValidityPeriodStart: time.Now().Add(-time.Hour),
			HashFunc: crypto.SHA256, PublicKey: s.ctKey.Public(), SignatureHashFunc: crypto.SHA256,
		}
	}
	logs := s.log.RekorLogs()
	for id, l := range logs { // sigstore-go's has the ID in hexadecimal
		l.ID, _ = hex.DecodeString(id)
	}
	from := time.Now().Add(-time.Hour)
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01,
		[]root.CertificateAuthority{&root.FulcioCertificateAuthority{Root: s.rootCert, Intermediates: []*x509.Certificate{s.issuer}, ValidityPeriodStart: from, URI: s.server.URL}},
		ctLogs,
		[]root.TimestampingAuthority{&root.SigstoreTimestampingAuthority{Root: s.rootCert, Intermediates: []*x509.Certificate{s.stampIssuer}, Leaf: s.stamper, ValidityPeriodStart: from, URI: s.server.URL}},
		logs)
	require.NoError(s.t, err)
	text, err := trusted.MarshalJSON()
	require.NoError(s.t, err)
	return string(text)
}

func keyID(t *testing.T, public crypto.PublicKey) [32]byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	return sha256.Sum256(der)
}

// Token is what an issuer says of an identity. It has no valid signature.
func Token(identity, issuer string) string {
	claims := map[string]any{"iss": issuer, "sub": identity, "aud": "sigstore", "exp": time.Now().Add(time.Hour).Unix()}
	if isEmail(identity) {
		claims["email"], claims["email_verified"] = identity, true
	}
	text, _ := json.Marshal(claims)
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(text) + "." + encode([]byte("signature"))
}

// certify is Fulcio's API.
func (s *Sigstore) certify(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Request struct {
			Key struct {
				Content string `json:"content"`
			} `json:"publicKey"`
		} `json:"publicKeyRequest"`
	}
	var claims struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
		Email   string `json:"email"`
	}
	parts := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err != nil || json.Unmarshal(text, &claims) != nil || json.NewDecoder(r.Body).Decode(&asked) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	block, _ := pem.Decode([]byte(asked.Request.Key.Content))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	der := s.Issue(public, cmp.Or(claims.Email, claims.Subject), claims.Issuer)
	chain := []string{}
	for _, c := range [][]byte{der, s.issuer.Raw, s.rootCert.Raw} {
		chain = append(chain, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c})))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"signedCertificateEmbeddedSct": map[string]any{"chain": map[string]any{"certificates": chain}}})
}

// Issue returns a certificate of the CA.
func (s *Sigstore) Issue(public crypto.PublicKey, identity, issuer string) []byte {
	s.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(issuer)}},
	}
	if isEmail(identity) {
		template.EmailAddresses = []string{identity}
	} else if subject, err := url.Parse(identity); err == nil {
		template.URIs = []*url.URL{subject}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.issuer, public, s.issuerKey)
	if err == nil && s.WithSCT {
		template.ExtraExtensions = append(template.ExtraExtensions, s.sct(der))
		der, err = x509.CreateCertificate(rand.Reader, template, s.issuer, public, s.issuerKey)
	}
	require.NoError(s.t, err)
	return der
}

func isEmail(identity string) bool {
	return strings.Contains(identity, "@") && !strings.Contains(identity, "/")
}

// sct returns the timestamp of the CT log for a certificate without one (RFC 6962, section 3.3).
func (s *Sigstore) sct(der []byte) pkix.Extension {
	cert, err := x509.ParseCertificate(der)
	require.NoError(s.t, err)
	sct := ct.SignedCertificateTimestamp{SCTVersion: ct.V1, Timestamp: uint64(time.Now().UnixMilli()), LogID: ct.LogID{KeyID: keyID(s.t, s.ctKey.Public())}}
	input, err := ct.SerializeSCTSignatureInput(sct, ct.LogEntry{Leaf: ct.MerkleTreeLeaf{
		Version: ct.V1, LeafType: ct.TimestampedEntryLeafType,
		TimestampedEntry: &ct.TimestampedEntry{
			Timestamp: sct.Timestamp, EntryType: ct.PrecertLogEntryType,
			PrecertEntry: &ct.PreCert{IssuerKeyHash: sha256.Sum256(s.issuer.RawSubjectPublicKeyInfo), TBSCertificate: cert.RawTBSCertificate},
		},
	}})
	require.NoError(s.t, err)
	signed, err := cttls.CreateSignature(*s.ctKey, cttls.SHA256, input)
	require.NoError(s.t, err)
	sct.Signature = ct.DigitallySigned(signed)
	one, err := cttls.Marshal(sct)
	require.NoError(s.t, err)
	list, err := cttls.Marshal(ctx509.SignedCertificateTimestampList{SCTList: []ctx509.SerializedSCT{{Val: one}}})
	require.NoError(s.t, err)
	value, err := asn1.Marshal(list)
	require.NoError(s.t, err)
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}, Value: value}
}

// enter is Rekor's API.
func (s *Sigstore) enter(w http.ResponseWriter, r *http.Request) {
	fail := func(err error) {
		http.Error(w, fmt.Sprintf(`{"code":400,"message":%q}`, err), http.StatusBadRequest)
	}
	proposed, err := models.UnmarshalProposedEntry(r.Body, runtime.JSONConsumer())
	if err != nil {
		fail(err)
		return
	}
	entry, err := types.UnmarshalEntry(proposed)
	if err != nil {
		fail(err)
		return
	}
	body, err := entry.Canonicalize(r.Context())
	if err != nil {
		fail(err)
		return
	}
	id, err := s.log.RekorLogID()
	require.NoError(s.t, err)
	payload := tlog.RekorPayload{Body: base64.StdEncoding.EncodeToString(body), IntegratedTime: time.Now().Add(s.Late).Unix(), LogID: id}
	var promise []byte
	if !s.NoTime {
		promise, err = s.log.RekorSignPayload(payload)
		require.NoError(s.t, err)
	}
	proof, err := s.log.GetInclusionProof(body)
	require.NoError(s.t, err)
	const uuid = "entry"
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", uuid)
	w.Header().Set("Location", s.server.URL+"/api/v1/log/entries/"+uuid)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(models.LogEntry{uuid: models.LogEntryAnon{
		Body: payload.Body, IntegratedTime: &payload.IntegratedTime, LogID: &payload.LogID, LogIndex: &payload.LogIndex,
		Verification: &models.LogEntryAnonVerification{InclusionProof: proof, SignedEntryTimestamp: promise},
	}})
}

// stamp is the API of the authority for timestamps.
func (s *Sigstore) stamp(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	require.NoError(s.t, err)
	asked, err := timestamp.ParseRequest(body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer := timestamp.Timestamp{
		HashAlgorithm: asked.HashAlgorithm, HashedMessage: asked.HashedMessage, Nonce: asked.Nonce, Time: time.Now(),
		Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, AddTSACertificate: asked.Certificates,
	}
	text, err := answer.CreateResponseWithOpts(s.stamper, s.stampKey, crypto.SHA256)
	require.NoError(s.t, err)
	w.Header().Set("Content-Type", "application/timestamp-reply")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(text)
}

// Sign signs a statement as cosign does, and returns the bundle.
func (s *Sigstore) Sign(statement []byte, identity, issuer string, options ...func(*sign.BundleOptions)) []byte {
	s.t.Helper()
	text, err := protojson.Marshal(s.Bundle(&sign.DSSEData{Data: statement, PayloadType: "application/vnd.in-toto+json"}, identity, issuer, options...))
	require.NoError(s.t, err)
	return text
}

// Bundle signs content keyless.
func (s *Sigstore) Bundle(content sign.Content, identity, issuer string, options ...func(*sign.BundleOptions)) *bundlepb.Bundle {
	s.t.Helper()
	key, err := sign.NewEphemeralKeypair(nil)
	require.NoError(s.t, err)
	o := sign.BundleOptions{
		Context:                    s.t.Context(),
		CertificateProvider:        sign.NewFulcio(&sign.FulcioOptions{BaseURL: s.server.URL}),
		CertificateProviderOptions: &sign.CertificateProviderOptions{IDToken: Token(identity, issuer)},
		TransparencyLogs:           []sign.Transparency{sign.NewRekor(&sign.RekorOptions{BaseURL: s.server.URL})},
	}
	for _, option := range options {
		option(&o)
	}
	b, err := sign.Bundle(content, key, o)
	require.NoError(s.t, err)
	return b
}
