package controlapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// authority is a CA of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key := selfsigned.Key(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{cert, key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// issue makes a certificate as the control plane's CA would.
func (a authority) issue(t testing.TB, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key := selfsigned.Key(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "leaf"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().AddDate(0, 3, 0)}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
}

func unchanged(*x509.Certificate) {}

// backend answers what the test says.
type backend struct {
	register  func(token string, req controlapi.RegisterRequest) (controlapi.Identity, error)
	check     func(token string) (controlapi.TokenState, error)
	renew     func(agentID string, req controlapi.RenewRequest) (controlapi.Identity, error)
	heartbeat func(agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error)
	events    func(agentID string, events []controlapi.Event) error
	putRoutes func(agentID string, req controlapi.RoutesRequest) (controlapi.RoutesState, error)
	visitor   func(agentID string, req controlapi.VisitorRequest) (controlapi.Visitor, error)
}

func (b *backend) Visitor(_ context.Context, agentID string, req controlapi.VisitorRequest) (controlapi.Visitor, error) {
	return b.visitor(agentID, req)
}

func (b *backend) Register(_ context.Context, token string, req controlapi.RegisterRequest) (controlapi.Identity, error) {
	return b.register(token, req)
}

func (b *backend) CheckToken(_ context.Context, token string, _ controlapi.TokenCheck) (controlapi.TokenState, error) {
	return b.check(token)
}

func (b *backend) Renew(_ context.Context, agentID string, req controlapi.RenewRequest) (controlapi.Identity, error) {
	return b.renew(agentID, req)
}

func (b *backend) Heartbeat(_ context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	return b.heartbeat(agentID, beat)
}

func (b *backend) Audit(_ context.Context, agentID string, req controlapi.AuditRequest) (controlapi.AuditAnswer, error) {
	return controlapi.AuditAnswer{Seq: int64(len(req.Lines)), Hash: agentID}, nil
}

func (b *backend) Events(_ context.Context, agentID string, r controlapi.EventsRequest) error {
	return b.events(agentID, r.Events)
}

func (b *backend) Routes(_ context.Context, agentID string) (controlapi.RoutesState, error) {
	return controlapi.RoutesState{Digest: "of " + agentID}, nil
}

func (b *backend) PutRoutes(_ context.Context, agentID string, req controlapi.RoutesRequest) (controlapi.RoutesState, error) {
	return b.putRoutes(agentID, req)
}

// identify takes the common name of whatever certificate is presented.
func identify(r *http.Request) (string, error) {
	if len(r.TLS.PeerCertificates) == 0 {
		return "", controlapi.Errorf(controlapi.CodeCertificateUnknown, "register first", "no client certificate was presented")
	}
	return r.TLS.PeerCertificates[0].Subject.CommonName, nil
}

func handlerOf(b controlapi.Backend, log zerolog.Logger) http.Handler {
	return controlapi.NewHandler(controlapi.HandlerConfig{Backend: b, Identify: identify, Version: "test", Log: log})
}

// serveTLS serves a handler with that certificate.
func serveTLS(t *testing.T, h http.Handler, cert tls.Certificate) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func newClient(t *testing.T, url string, cfg *tls.Config, change func(*controlapi.ClientConfig)) *controlapi.Client {
	t.Helper()
	c := controlapi.ClientConfig{URL: url, TLS: func() *tls.Config { return cfg }, Log: zerolog.Nop(),
		WaitMin: time.Millisecond, WaitMax: 5 * time.Millisecond}
	change(&c)
	client, err := controlapi.NewClient(c)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// clientOf is a client with a certificate of the CA, of a server with that handler.
func clientOf(t *testing.T, ca authority, h http.Handler) *controlapi.Client {
	t.Helper()
	s := serveTLS(t, h, ca.issue(t, unchanged))
	return newClient(t, s.URL, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool(), Certificates: []tls.Certificate{ca.issue(t, unchanged)}}, noChange)
}

func noChange(*controlapi.ClientConfig) {}

func newTestToken(t testing.TB, fingerprint string) controlapi.Token {
	t.Helper()
	token, err := controlapi.NewToken(fingerprint)
	require.NoError(t, err)
	return token
}

// requireProblem is problemtest.Refused by a shorter name.
var requireProblem = problemtest.Refused

func soundRegister() controlapi.RegisterRequest {
	return controlapi.RegisterRequest{Name: "shop", ClusterUID: "uid", CSR: "csr", AgentVersion: "1", RunnerAPIVersion: "v1", Clock: time.Now()}
}
