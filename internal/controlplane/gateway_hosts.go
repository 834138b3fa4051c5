package controlplane

import (
	"context"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// certificate returns the state of a host's certificate, and why there is none.
func (p *public) certificate(ctx context.Context, host string) (state, reason string) {
	if p.certs.Has(ctx, host) {
		return controlapi.CertificateReady, ""
	}
	if strings.HasPrefix(host, "*.") && !p.certs.Internal() {
		return controlapi.CertificateFailed, "no certificate of the operator covers the wildcard host; the operator puts one into the directory --gateway-certificates"
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	failed, err := p.store.CertificateFailure(ctx, host)
	if err != nil {
		failed.Reason = printable.Text(p.certs.WildcardFailed(host))
	}
	if failed.Reason != "" {
		return controlapi.CertificateFailed, routes.NoCertificate(failed)
	}
	return controlapi.CertificatePending, ""
}
