package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// controlPlanePath is the whole path of the control plane's SPIFFE ID: there is only one.
const controlPlanePath = "/controlplane"

var identityName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// RunnerURI returns the SPIFFE ID in a Runner's certificate.
func RunnerURI(trustDomain, name string) *url.URL {
	return trustanchor.LeafURI(trustDomain, trustanchor.RoleRunner, name)
}

// AgentURI returns the SPIFFE ID in an agent's certificate.
func AgentURI(trustDomain, agentID string) *url.URL {
	return trustanchor.LeafURI(trustDomain, trustanchor.RoleAgent, agentID)
}

// ControlPlaneURI returns the SPIFFE ID with which the control plane sends refresh requests to
// agents.
func ControlPlaneURI(trustDomain string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: controlPlanePath}
}

// CallerFromTLS returns the name of the Runner at the other end of a connection, from its verified
// certificate.
func CallerFromTLS(state *tls.ConnectionState, trustDomain string) (string, error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return "", errors.New("the connection has no verified client certificate")
	}
	return CertificateName(state.VerifiedChains[0][0], trustDomain, trustanchor.RoleRunner)
}

// CertificateName returns the name in a certificate, which must carry exactly one URI, of this
// trust domain and role (SPIFFE X.509-SVID, section 2).
func CertificateName(cert *x509.Certificate, trustDomain, role string) (string, error) {
	if len(cert.URIs) != 1 {
		return "", fmt.Errorf("the certificate carries %d URIs, one is needed: spiffe://%s/%s/NAME", len(cert.URIs), trustDomain, role)
	}
	uri := cert.URIs[0]
	name, ok := strings.CutPrefix(uri.Path, "/"+role+"/")
	if uri.Scheme != "spiffe" || uri.Host != trustDomain || !ok || !identityName.MatchString(name) ||
		uri.RawQuery != "" || uri.Fragment != "" || uri.User != nil {
		return "", fmt.Errorf("the certificate is for %s, not for spiffe://%s/%s/NAME", printable.Clip(uri.String()), trustDomain, role)
	}
	return name, nil
}
