package runnertest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// PEM returns a certificate with its chain, and its key, as a file of credentials has them.
func PEM(t testing.TB, cert tls.Certificate) (chain, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	require.NoError(t, err)
	for _, raw := range cert.Certificate {
		chain += encode("CERTIFICATE", raw)
	}
	return chain, encode("PRIVATE KEY", der)
}

// PEM returns the root.
func (ca *CA) PEM() string { return encode("CERTIFICATE", ca.Cert.Raw) }

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Credentials returns those of Runner RunnerName, for a control plane and the agents' address.
func (ca *CA) Credentials(t testing.TB, controlPlane, edge string) credentials.Credentials {
	t.Helper()
	c := credentials.Credentials{
		Runner: RunnerName, ControlPlane: controlPlane, Edge: edge, TrustDomain: TrustDomain, CA: ca.PEM(),
		AgentsDomain: strings.TrimPrefix(ServerName, AgentID+"."),
	}
	c.Certificate, c.Key = PEM(t, ca.Issue(t, credentials.RunnerURI(TrustDomain, RunnerName)))
	return c
}

// BehindProxy is a name of the control plane that no DNS server knows, for tests of proxies.
const BehindProxy = "control-plane.invalid"

// ServeControlPlane serves a handler as a control plane with this CA does, and returns its URL.
func (ca *CA) ServeControlPlane(t testing.TB, handler http.Handler) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(handler)
	cert := ca.Issue(t, &url.URL{Scheme: "spiffe", Host: TrustDomain, Path: "/control-plane"}, "localhost", BehindProxy)
	srv.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.Pool,
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	return "https://localhost:" + port
}
