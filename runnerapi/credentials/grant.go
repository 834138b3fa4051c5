package credentials

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// MaxGrant bounds the text of a grant, in bytes.
const MaxGrant = 1024

// grantOID is the OID of the certificate extension that holds a grant (docs/adr/0023). It is
// derived from a UUID below the arc that Microsoft provides for that.
var grantOID = asn1.ObjectIdentifier{1, 2, 840, 113556, 1, 8000, 2554, 53702, 19502, 7018, 19118, 34036, 4378416, 16178480}

// Grant selects by label the agents that a Runner may see and reach. The zero Grant selects all
// agents.
type Grant struct {
	selector labels.Selector
}

// ParseGrant parses a grant in Kubernetes' syntax of label selectors, such as "env=prod,region in
// (eu,us)". An empty text selects all agents.
func ParseGrant(text string) (Grant, error) {
	if len(text) > MaxGrant {
		return Grant{}, fmt.Errorf("a selector of agents has at most %d characters", MaxGrant)
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return Grant{}, fmt.Errorf("%q is not a selector of agents by label; write it as Kubernetes does, for example env=prod,region in (eu,us): %w", printable.Clip(text), err)
	}
	if selector.Empty() {
		return Grant{}, nil
	}
	return Grant{selector: selector}, nil
}

// All reports whether the grant selects all agents.
func (g Grant) All() bool { return g.selector == nil }

// Allows reports whether the grant selects an agent with these labels.
func (g Grant) Allows(agent map[string]string) bool {
	return g.All() || g.selector.Matches(labels.Set(agent))
}

// Requirements returns what the labels of a selected agent have to meet; none if the grant selects
// all agents.
func (g Grant) Requirements() labels.Requirements {
	if g.All() {
		return nil
	}
	all, _ := g.selector.Requirements()
	return all
}

// String returns the grant in the syntax of ParseGrant: empty for all agents.
func (g Grant) String() string {
	if g.All() {
		return ""
	}
	return g.selector.String()
}

// Extensions returns the certificate extension that carries the grant, or none if the grant selects
// all agents. The extension is critical: software that does not know grants refuses the certificate
// and does not accept it everywhere.
func (g Grant) Extensions() ([]pkix.Extension, error) {
	if g.All() {
		return nil, nil
	}
	value, err := asn1.MarshalWithParams(g.String(), "utf8")
	if err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	return []pkix.Extension{{Id: grantOID, Critical: true, Value: value}}, nil
}

// GrantOf returns the grant that a certificate carries. A malformed grant is an error, not a grant
// for all agents.
func GrantOf(cert *x509.Certificate) (Grant, error) {
	for _, e := range cert.Extensions {
		if e.Id.Equal(grantOID) {
			return decodeGrant(e.Value)
		}
	}
	return Grant{}, nil
}

func decodeGrant(value []byte) (Grant, error) {
	const bad = "the certificate's grant cannot be read: "
	if len(value) > MaxGrant+8 { // plus its header
		return Grant{}, errors.New(bad + "it is too long")
	}
	var text string
	rest, err := asn1.UnmarshalWithParams(value, &text, "utf8")
	if err != nil || len(rest) > 0 {
		return Grant{}, errors.New(bad + "it is not a text")
	}
	g, err := ParseGrant(text)
	if err == nil && g.All() {
		err = errors.New("it is empty")
	}
	if err != nil {
		return Grant{}, errors.New(bad + err.Error())
	}
	return g, nil
}

// Understood returns a copy of the certificate for verification by x509, with the grant's extension
// marked as handled. x509 refuses certificates with unhandled critical extensions.
func Understood(cert *x509.Certificate) *x509.Certificate {
	if len(cert.UnhandledCriticalExtensions) == 0 {
		return cert
	}
	copied := *cert // the original is shared between connections
	copied.UnhandledCriticalExtensions = slices.DeleteFunc(slices.Clone(cert.UnhandledCriticalExtensions), grantOID.Equal)
	return &copied
}
