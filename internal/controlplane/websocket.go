package controlplane

import (
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// serveTunnel takes the tunnels of agents that reach nothing but the HTTPS API. Who they
// are is found out as on the tunnel's own port, from their certificates.
func (a *api) serveTunnel(sockets *server.Websockets) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if authn.CertificateOf(r.TLS) == nil {
			problem.Write(w, problem.RequestID(r.Context()), controlapi.Errorf(controlapi.CodeCertificateUnknown,
				"register first, then call with the agent's certificate", "no client certificate was presented"))
			return
		}
		id, err := a.authn.AgentOfTunnel(*r.TLS) //nolint:contextcheck // of the tunnel's own port there is none
		if err != nil {
			problem.Write(w, problem.RequestID(r.Context()), err)
			return
		}
		sockets.Serve(w, r, id) //nolint:contextcheck // the tunnel is not the request's
	}
}
