package controlplane

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/acting"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// FileFirstOperator has the credentials of the first admin, in the data directory.
const FileFirstOperator = "admin.json"

// openOperators opens the operator API. What operators change reaches the other parts as the
// changes of another process do.
func (c *ControlPlane) openOperators(ctx context.Context) error {
	admin, err := administration.Over(ctx, c.cfg.data(), c.store.Beside(), c.cfg.Now)
	if err != nil {
		return err
	}
	c.operators = operatorapi.NewServer(admin, operatorapi.Config{
		Identify: c.operatorOf, Name: hostname(), Version: c.cfg.Version, Log: c.cfg.Log,
		Settings: administration.Settings{
			Broker:   rabbitmq.Config{URLs: c.cfg.BrokerURLs, TLS: c.cfg.BrokerTLS, Reread: c.cfg.BrokerReread, Log: c.cfg.Log},
			Webhooks: webhook.Options{TLS: c.cfg.WebhookTLS, UserAgent: "pipeops-controlplane/" + c.cfg.Version, Console: c.consoleURL},

			Replicas: c.replicas, ConsoleCode: c.authn.ConsoleCode, ConsoleURL: c.consoleURL(),
			Acting: acting.New(acting.Config{
				Store: c.store, CA: c.ca, TrustDomain: c.cfg.TrustDomain, AgentsDomain: c.cfg.AgentsDomain,
				Edge: reachable(c.listeners.edge.Addr()), Now: c.cfg.Now,
			}),
		},
	})
	c.api.operators = c.operators
	c.issuers = idtoken.NewIssuers(c.cfg.OpenID.TLS, c.cfg.Now)
	c.openExchange()
	if err := c.openConsole(admin.Database()); err != nil {
		return err
	}
	c.local = listenLocal(ctx, c.cfg.data(), c.operators, c.cfg.Log)
	return c.firstOperator(ctx, admin)
}

// operatorOf identifies the caller of the operator API.
func (c *ControlPlane) operatorOf(r *http.Request) (operatorapi.Caller, error) {
	if caller, local := localCaller(r); local {
		return caller, nil
	}
	found, err := c.authn.OperatorOfRequest(r)
	caller := operatorapi.Caller{Operator: found, Proven: found.Name}
	if err != nil && found.Name == "" {
		caller.Proven = c.authn.ProvenName(r)
	}
	if cert := authn.CertificateOf(r.TLS); cert != nil && caller.Proven != "" {
		caller.Certificate, caller.Presented = cert.SerialNumber.Text(16), cert
	}
	return caller, err
}

// firstOperator makes the first admin, who can make others.
func (c *ControlPlane) firstOperator(ctx context.Context, admin *administration.Admin) error {
	made, first, err := admin.Operators.First(ctx)
	if err != nil || !first {
		return err
	}
	file := filepath.Join(c.cfg.DataDir, FileFirstOperator)
	if err := made.Write(file); err != nil {
		return err
	}
	c.cfg.Log.Info().Str("operator", made.Operator).Str("role", administration.RoleAdmin).Str("file", file).
		Msg("created the first operator; protect the file like a password")
	return nil
}
