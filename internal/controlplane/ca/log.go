package ca

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// Log keeps a record of each certificate that the CA issues.
type Log interface {
	// Record stores a record durably. If it fails, the CA returns its error and no certificate.
	Record(r Record) error
}

// LogFunc is a function as a Log.
type LogFunc func(Record) error

// Record implements Log.
func (f LogFunc) Record(r Record) error { return f(r) }

// The roles of certificates.
const (
	RoleAgent        = trustanchor.RoleAgent
	RoleRunner       = trustanchor.RoleRunner
	RoleOperator     = trustanchor.RoleOperator
	RoleServer       = trustanchor.RoleServer
	RoleControlPlane = trustanchor.RoleControlPlane
	RoleCA           = "ca"
)

// leafRoles are the roles that have an intermediate CA each.
var leafRoles = []string{RoleAgent, RoleRunner, RoleOperator, RoleServer, RoleControlPlane}

// Roles are the roles of certificates, for users.
var Roles = append(slices.Clone(leafRoles), RoleCA)

// Record describes an issued certificate.
type Record struct {
	// SHA256 is of the whole certificate, in hexadecimal.
	SHA256 string
	Serial string // hexadecimal
	Role   string
	// Name is an agent's ID, a Runner's, operator's or CA's name, or the names of a server.
	Name string
	// Issuer is the KeyID of the CA that signed it.
	Issuer              string
	NotBefore, NotAfter time.Time
	IssuedAt            time.Time
	// Reason says what it was issued for.
	Reason string
}

// The reasons of certificates that no call asks for.
const (
	reasonFirstCA      = "first start"
	reasonRotation     = "ca rotate start"
	reasonIntermediate = "renewal of an intermediate CA"
	reasonListeners    = "listeners of the control plane"
	reasonRefresh      = "refresh requests to agents"
	reasonPeers        = "connections of control planes"
)

// record has the log keep a certificate, before anything else gets it.
func (c *core) record(cert *x509.Certificate, reason string) error {
	sum := sha256.Sum256(cert.Raw)
	role, name := roleOf(cert)
	err := c.log.Record(Record{
		SHA256: hex.EncodeToString(sum[:]), Serial: cert.SerialNumber.Text(16), Role: role, Name: name, Issuer: IssuerID(cert),
		NotBefore: cert.NotBefore, NotAfter: cert.NotAfter, IssuedAt: c.now(), Reason: reason,
	})
	if err != nil {
		return fmt.Errorf("certificate not issued: it could not be recorded in the log of certificates: %w", err)
	}
	return nil
}

// roleOf returns the role of a certificate and the name of its holder.
func roleOf(cert *x509.Certificate) (role, name string) {
	if cert.IsCA {
		return RoleCA, cert.Subject.CommonName
	}
	if len(cert.URIs) == 0 {
		names := slices.Clone(cert.DNSNames)
		for _, ip := range cert.IPAddresses {
			names = append(names, ip.String())
		}
		return RoleServer, strings.Join(names, " ")
	}
	role, name, _ = strings.Cut(strings.TrimPrefix(cert.URIs[0].Path, "/"), "/")
	return role, name
}
