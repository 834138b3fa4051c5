package runnerapi

import (
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

func (s AppSpec) visitors() *Visitors {
	if s.Ingress == nil {
		return nil
	}
	return s.Ingress.Visitors
}

func (s AppSpec) publicPorts() []IngressPort {
	if s.Ingress == nil {
		return nil
	}
	return s.Ingress.Ports
}

func (v *Visitors) empty() bool {
	return len(v.AllowFrom) == 0 && v.BasicAuthSecret == "" && v.RequestsPerSecond == 0 && v.MaxBodyBytes == 0 &&
		v.SignIn == nil && v.ServiceTokensSecret == ""
}

// Secrets returns the names of the Secrets by which visitors are let in.
func (v *Visitors) Secrets() (names []string) {
	if v == nil {
		return nil
	}
	names = []string{v.BasicAuthSecret, v.ServiceTokensSecret}
	if v.SignIn != nil {
		names = append(names, v.SignIn.Secret)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

func (s AppSpec) signIn() *SignIn {
	if v := s.visitors(); v != nil {
		return v.SignIn
	}
	return nil
}

// everyone is the email that stands for each person whom a provider knows.
const everyone = "*"

// SignsIn reports whether visitors have to sign in, or need a service token. A provider that the
// deployer names may know everyone, so that to let in all of its persons is no choice.
func (v *Visitors) SignsIn() bool {
	return v != nil && v.SignIn != nil && (v.SignIn.Secret == "" || !slices.Contains(v.SignIn.Emails, everyone))
}

// Widest networks that count as a choice of visitors, in bits.
const minBits4, minBits6 = 8, 16

// SignsIn reports whether visitors of an App with that ingress have to sign in wherever it is
// public. At a port no one can.
func (i *Ingress) SignsIn() bool {
	return i != nil && len(i.Ports) == 0 && !i.passes() && i.Visitors.SignsIn()
}

// passes reports whether connections to one of the hosts reach the App with their TLS.
func (i *Ingress) passes() bool {
	return slices.ContainsFunc(i.Hosts, func(h IngressHost) bool { return h.Passthrough })
}

// GatewayAlone reports whether the App has a host or a port that no ingress controller serves.
func (i *Ingress) GatewayAlone() bool {
	return i.Public || i.Visitors != nil || len(i.Ports) > 0 || i.passes()
}

// TCP reports whether the port is one of TCP, which is the default.
func (p IngressPort) TCP() bool { return p.Protocol == "" || p.Protocol == "TCP" }

// portsAlone reports whether an ingress has ports of the gateway, and serves no requests of HTTP.
func (i *Ingress) portsAlone() bool { return !i.Public && len(i.Hosts) == 0 && len(i.Ports) > 0 }

// identifies reports whether visitors have to say who they are.
func (v *Visitors) identifies() bool {
	return v != nil && (v.BasicAuthSecret != "" || v.SignsIn() || v.SignIn == nil && v.ServiceTokensSecret != "")
}

// Protects reports whether an App with that ingress does not let in everyone anywhere. At a port,
// and at a host whose TLS the App ends, networks alone can keep visitors out.
func (i *Ingress) Protects() bool {
	if i == nil {
		return false
	}
	everywhere := i.Visitors != nil && narrow(i.Visitors.AllowFrom)
	hosts := everywhere || i.Visitors.identifies() && !i.passes()
	if (i.Public || len(i.Hosts) > 0 || len(i.Ports) == 0) && !hosts {
		return false
	}
	return every(i.Ports, func(p IngressPort) bool { return narrow(p.AllowFrom) || len(p.AllowFrom) == 0 && everywhere })
}

func narrow(networks []string) bool {
	return len(networks) > 0 && every(networks, func(text string) bool {
		n, err := limit.ParseNetwork(text)
		return err == nil && (n.Addr().Is4() && n.Bits() >= minBits4 || n.Addr().Is6() && n.Bits() >= minBits6)
	})
}
