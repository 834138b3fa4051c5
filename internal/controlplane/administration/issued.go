package administration

import (
	"context"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// IssuedOptions select from the log of certificates; empty fields select all.
type IssuedOptions struct {
	// Kind is a role of ca.Roles. If it, Name and Serial are empty, the control plane's own client
	// certificates are left out, of which there is one every few minutes.
	Kind string
	// Name is an agent's name or ID, or the name of another holder.
	Name   string
	Serial string
	Limit  int
}

// Check returns an error for invalid options.
func (o IssuedOptions) Check() error {
	switch {
	case o.Kind != "" && !slices.Contains(ca.Roles, o.Kind):
		return invalid("", "--kind: %q is none of %s", o.Kind, strings.Join(ca.Roles, ", "))
	case o.Limit < 1:
		return invalid("", "--limit: must be 1 or more")
	}
	return nil
}

func (o IssuedOptions) roles() []string {
	switch {
	case o.Kind != "":
		return []string{o.Kind}
	case o.Name == "" && o.Serial == "":
		return slices.DeleteFunc(slices.Clone(ca.Roles), func(r string) bool { return r == ca.RoleControlPlane })
	}
	return nil
}

// IssuedCertificate is a record in the log of certificates.
type IssuedCertificate struct {
	store.Certificate
	// AgentName is the name today of an agent.
	AgentName string `json:"agentName,omitempty"`
}

// Issued lists certificates that were issued, the newest first.
func (a *Authority) Issued(ctx context.Context, o IssuedOptions) ([]IssuedCertificate, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	agents, err := a.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	names, wanted := map[string]string{}, []string{}
	if o.Name != "" {
		wanted = append(wanted, o.Name)
	}
	for _, g := range agents {
		names[g.ID] = g.Name
		if g.Name == o.Name {
			wanted = append(wanted, g.ID)
		}
	}
	found, err := a.store.Certificates(ctx, store.CertificatesWanted{
		Roles: o.roles(), Names: wanted, Serial: strings.ToLower(strings.ReplaceAll(o.Serial, ":", "")), Limit: o.Limit,
	})
	if err != nil {
		return nil, err
	}
	list := make([]IssuedCertificate, len(found))
	for i, c := range found {
		list[i] = IssuedCertificate{Certificate: c}
		if c.Role == ca.RoleAgent {
			list[i].AgentName = names[c.Name]
		}
	}
	return list, nil
}
