package hostile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// Enrol registers an agent at a control plane, without the agent's program. It returns the agent's
// identity, and the TLS that it calls the control plane with.
func Enrol(ctx context.Context, url, token, name, cluster string) (id controlapi.Identity, config *tls.Config, err error) {
	parsed, err := controlapi.ParseToken(token)
	if err != nil {
		return id, nil, err
	}
	trust, err := controlapi.Trust{Fingerprint: parsed.Fingerprint}.TLSConfig(url)
	if err != nil {
		return id, nil, err
	}
	key, err := identity.NewKey()
	if err != nil {
		return id, nil, err
	}
	csr, err := identity.CSR(key)
	if err != nil {
		return id, nil, err
	}
	client, err := controlapi.NewClient(controlapi.ClientConfig{
		URL: url, TLS: func() *tls.Config { return trust }, Log: zerolog.Nop(),
		Origin: func() controlapi.Origin { return controlapi.Origin{ClusterUID: cluster} },
	})
	if err != nil {
		return id, nil, err
	}
	defer client.Close()
	id, err = client.Register(ctx, parsed, controlapi.RegisterRequest{
		Name: name, ClusterUID: cluster, CSR: csr, AgentVersion: "1", RunnerAPIVersion: "v1", Clock: time.Now(),
	})
	if err != nil {
		return id, nil, err
	}
	own, err := identity.New(key, id, false)
	if err != nil {
		return id, nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(id.CABundle))
	return id, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{own.Certificate}}, nil
}
