package authn

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// fixOperator is for a certificate that proves no operator.
const fixOperator = "use the credentials that `pipeops-controlplane operator create NAME -o FILE` wrote"

// OperatorOfRequest identifies an operator. With an error it returns the name alone, if the
// certificate is an operator's of ours.
func (p *Authenticator) OperatorOfRequest(r *http.Request) (store.Operator, error) {
	cert := CertificateOf(r.TLS)
	if cert == nil {
		return store.Operator{}, controlapi.Errorf(controlapi.CodeCertificateUnknown, fixOperator, "no client certificate was presented")
	}
	name, bad := p.Verify(cert, ca.RoleOperator)
	if bad != nil {
		bad.Fix = fixOperator
		if bad.Code == controlapi.CodeCertificateExpired {
			name, _ = p.Name(cert, ca.RoleOperator)
			bad.Fix = "have an admin make new credentials with `pipeops-controlplane operator create " + cmp.Or(name, "NAME") + " --role ROLE -o FILE --force`; " +
				"on the control plane's machine, the command needs no credentials"
		}
		return store.Operator{}, bad
	}
	known, err := p.knownOperator(r.Context(), name, cert.SerialNumber.Text(16))
	if err == nil && known.Key != KeyPrint(cert) {
		return store.Operator{Name: name}, replacedOperator(name)
	}
	return known, err
}

func replacedOperator(name string) error {
	return controlapi.Errorf(controlapi.CodeCertificateUnknown, "use the newest credentials", "operator %s has other credentials since", name)
}

// knownOperator returns the operator of a certificate, by its serial number. With an error it
// returns the name alone.
func (p *Authenticator) knownOperator(ctx context.Context, name, serial string) (store.Operator, error) {
	named := store.Operator{Name: name}
	known, err := p.Store.Operator(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return named, controlapi.Errorf(controlapi.CodeCertificateUnknown, fixOperator, "the control plane does not know operator %s", name)
	case err != nil:
		return named, p.undecided(err)
	case known.Serial != serial:
		return named, replacedOperator(name)
	case !known.RevokedAt.IsZero():
		return named, controlapi.Errorf(controlapi.CodeCertificateUnknown, "have an admin make new credentials with `pipeops-controlplane operator create "+name+" -o FILE`",
			"operator %s was revoked at %s", name, known.RevokedAt.UTC().Format(time.RFC3339))
	}
	return known, nil
}

// ProvenName returns the role and name in a certificate that our CA signed, and that has not ended,
// such as runner/builder. The certificate may have been revoked. It is empty for any other.
func (p *Authenticator) ProvenName(r *http.Request) string {
	cert := CertificateOf(r.TLS)
	if cert == nil {
		return ""
	}
	for _, role := range []string{ca.RoleOperator, ca.RoleRunner, ca.RoleAgent} {
		if name, bad := p.Verify(cert, role); bad == nil {
			return role + "/" + name
		}
	}
	return ""
}
