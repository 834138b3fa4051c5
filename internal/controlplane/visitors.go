package controlplane

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/visitors"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// visitorsOf is what signs visitors of Apps in needs of a control plane.
type visitorsOf struct{ *ControlPlane }

// newVisitors returns what signs visitors of Apps in, once it has a provider.
func newVisitors(c *ControlPlane) *visitors.Visitors {
	of := visitorsOf{c}
	return visitors.New(visitors.Config{
		Store: c.store, Agent: of.agent, Return: of.callback, Log: c.cfg.Log, Now: c.cfg.Now,
		Record: func(ctx context.Context, in visitors.SignIn, err error) {
			c.operators.RecordVisitor(ctx, in, err) // they are opened later
		},
	})
}

// agent returns the agent that serves a host at the gateway; empty for none.
func (c visitorsOf) agent(host string) string {
	found, served := c.public.table.Lookup(host)
	if !served {
		return ""
	}
	return found.AgentID // none of the gateway's own host
}

// callback returns the address of a host to which a visitor returns.
func (c visitorsOf) callback(host string) string {
	at := url.URL{Scheme: "https", Host: host, Path: gatewaywire.CallbackPath}
	public := cmp.Or(c.cfg.Gateway.HTTPSPort, defaultHTTPS)
	if c.listeners.https != nil { // other processes have the gateway
		public = publicPort(&c.cfg, c.listeners.https)
	}
	if public != defaultHTTPS {
		at.Host = net.JoinHostPort(host, strconv.Itoa(public))
	}
	return at.String()
}

// page returns where visitors of Apps sign in by the operators' identity provider; nil if
// there is none.
func (c visitorsOf) page() *controlapi.VisitorSignIn {
	if !c.cfg.OpenID.Given() || c.public == nil {
		return nil
	}
	return &controlapi.VisitorSignIn{Page: c.consoleURL() + web.VisitorPath, Provider: c.cfg.OpenID.Issuer}
}
