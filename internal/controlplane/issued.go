package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// certificatesFor is how long the log keeps a certificate after the certificate's end.
	certificatesFor = 90 * 24 * time.Hour
	// maxIssued is how many certificates one agent or Runner gets within issuedWithin. It bounds what
	// one that asks again and again can write into the database.
	maxIssued = 600
	// issuedWithin is the time of maxIssued.
	issuedWithin = time.Hour
)

// reasonRenewal is the reason of a certificate that its holder asked for.
const reasonRenewal = "renewal"

// certificateLog keeps the log of certificates in the database.
type certificateLog struct{ store *store.Store }

var _ ca.Log = certificateLog{}

// Record implements ca.Log.
func (l certificateLog) Record(r ca.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	return l.store.UpdateQuietly(ctx, func(tx *store.Tx) error {
		if err := mayHaveOneMore(ctx, tx, r); err != nil {
			return err
		}
		return tx.AddCertificate(ctx, store.Certificate{
			Serial: r.Serial, Role: r.Role, Name: r.Name, Issuer: r.Issuer, NotBefore: r.NotBefore, NotAfter: r.NotAfter,
			SHA256: r.SHA256, IssuedAt: r.IssuedAt, Reason: r.Reason,
		})
	})
}

// mayHaveOneMore refuses agents and Runners that ask for certificates all the time.
func mayHaveOneMore(ctx context.Context, tx *store.Tx, r ca.Record) error {
	if r.Role != ca.RoleAgent && r.Role != ca.RoleRunner {
		return nil
	}
	n, err := tx.CertificatesSince(ctx, r.Role, r.Name, r.IssuedAt.Add(-issuedWithin))
	if err != nil || n < maxIssued {
		return err
	}
	return problem.Errorf(problem.TooManyRequests, "wait, and use the certificate that you have",
		"%s %s got %d certificates within an hour", r.Role, r.Name, n).WithRetryAfter(time.Minute)
}

// forgetCertificates deletes the records of certificates that ended long before now.
func (c *ControlPlane) forgetCertificates(ctx context.Context, now time.Time) error {
	return c.store.ForgetCertificates(ctx, now.Add(-certificatesFor))
}

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
		return fmt.Errorf("--kind: %q is none of %s", o.Kind, strings.Join(ca.Roles, ", "))
	case o.Limit < 1:
		return errors.New("--limit: must be 1 or more")
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
func (a *Admin) Issued(ctx context.Context, o IssuedOptions) ([]IssuedCertificate, error) {
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
