package trustanchor

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// The roles of certificates. The control plane's CA has an intermediate CA for each.
const (
	RoleAgent        = "agent"
	RoleRunner       = "runner"
	RoleOperator     = "operator"     // clients of the operator API
	RoleServer       = "server"       // the control plane's listeners
	RoleControlPlane = "controlplane" // the control plane as a client of agents and of others
)

// intermediatePath begins the path of an intermediate CA's SPIFFE ID; its role follows.
const intermediatePath = "/ca/"

// IntermediateURI returns the SPIFFE ID of the intermediate CA that signs certificates of a role.
func IntermediateURI(trustDomain, role string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: intermediatePath + role}
}

// LeafURI returns the SPIFFE ID of a holder of a certificate.
func LeafURI(trustDomain, role, name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/" + role + "/" + name}
}

// RoleOf returns the role for which an intermediate CA signs, and "" for any other certificate.
func RoleOf(intermediate *x509.Certificate) string {
	if !intermediate.IsCA || len(intermediate.URIs) != 1 {
		return ""
	}
	uri := intermediate.URIs[0]
	role, _ := strings.CutPrefix(uri.Path, intermediatePath)
	if uri.String() != IntermediateURI(uri.Host, role).String() {
		return ""
	}
	return role
}

// SignedFor returns an error unless the intermediate CA of that role signed the first certificate
// of a verified chain. X.509 name constraints look at the host of a SPIFFE ID alone, so verifiers
// ask this for the role. A certificate that a root CA signed by itself is refused, too.
func SignedFor(chains [][]*x509.Certificate, trustDomain, role string) error {
	if len(chains) == 0 {
		return errors.New("the certificate was not verified")
	}
	want := IntermediateURI(trustDomain, role).String()
	ok := slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
		return len(chain) > 1 && chain[1].IsCA && len(chain[1].URIs) == 1 && chain[1].URIs[0].String() == want
	})
	if !ok {
		return fmt.Errorf("the certificate was not signed by the control plane's intermediate CA for the role %s (%s)", role, want)
	}
	return nil
}
