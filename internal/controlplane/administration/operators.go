package administration

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// The roles of operators. Each may do what the one before may.
const (
	RoleViewer   = authn.RoleViewer
	RoleOperator = authn.RoleOperator
	RoleAdmin    = authn.RoleAdmin
)

// Roles are the roles of operators, each of which includes those before it.
var Roles = authn.Roles

// Includes reports whether a role includes another.
func Includes(role, other string) bool { return authn.Includes(role, other) }

const (
	// DefaultOperatorTTL is how long an operator's certificate is valid.
	DefaultOperatorTTL = 90 * 24 * time.Hour
	// MaxOperatorTTL is the longest life, for which an intermediate CA is sure to last.
	MaxOperatorTTL = 365 * 24 * time.Hour
	// FirstOperator is the name of the admin that the first start makes.
	FirstOperator = "admin"
	// maxOperators bounds the list.
	maxOperators = 1000
)

// OperatorOptions describe an operator's credentials.
type OperatorOptions struct {
	Name, Role string
	TTL        time.Duration
	// Replace gives an operator new credentials and this role, and ends the old credentials.
	Replace bool

	reason string // for the log of certificates
}

func (o *OperatorOptions) validate() error {
	switch {
	case !runnerName.MatchString(o.Name):
		return invalid("use a-z, 0-9 and '-', at most 63 characters", "%q is not a valid operator name", o.Name)
	case !slices.Contains(Roles, o.Role):
		return invalid("use "+strings.Join(Roles, ", "), "--role: unknown role %q", o.Role)
	case o.TTL < time.Minute || o.TTL > MaxOperatorTTL:
		return invalid("", "--ttl: must be between a minute and 8760h, which is a year")
	}
	return nil
}

// List returns the operators, including revoked ones.
func (a *Operators) List(ctx context.Context) ([]store.Operator, error) {
	return a.store.Operators(ctx)
}

// Create issues an operator's credentials.
func (a *Operators) Create(ctx context.Context, opts OperatorOptions) (Credentials, error) {
	if err := opts.validate(); err != nil {
		return Credentials{}, err
	}
	opts.reason = cmp.Or(opts.reason, "operator create")
	at, err := a.Advertised(ctx)
	if err != nil {
		return Credentials{}, err
	}
	if err := a.store.DryRun().Update(ctx, func(tx *store.Tx) error { return a.mayPut(ctx, tx, opts) }); err != nil || a.dry {
		return Credentials{Operator: opts.Name}, err
	}
	if _, err := a.ca.Reload(); err != nil {
		return Credentials{}, err
	}
	issued, key, err := a.ca.Client(opts.Name, trustanchor.LeafURI(at.TrustDomain, ca.RoleOperator, opts.Name), opts.TTL, opts.reason)
	if err != nil {
		return Credentials{}, err
	}
	cert, err := ca.ParseCertificate(issued.Certificate)
	if err != nil {
		return Credentials{}, err
	}
	err = a.store.Update(ctx, func(tx *store.Tx) error {
		if err := a.mayPut(ctx, tx, opts); err != nil {
			return err
		}
		if _, err := tx.EndConsoleSessions(ctx, opts.Name, a.now()); err != nil { // of earlier credentials
			return err
		}
		return tx.PutOperator(ctx, store.Operator{
			Name: opts.Name, Role: opts.Role, Serial: issued.Serial, Key: authn.KeyPrint(cert), CreatedAt: a.now(), ExpiresAt: issued.NotAfter,
		})
	})
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{
		Operator: opts.Name, ControlPlane: at.API, TrustDomain: at.TrustDomain,
		CA: string(a.ca.Bundle()), Certificate: issued.Certificate, Key: string(key),
	}, nil
}

// mayPut refuses a name that is in use.
func (a *Operators) mayPut(ctx context.Context, tx *store.Tx, opts OperatorOptions) error {
	all, err := tx.Operators(ctx)
	if err != nil {
		return err
	}
	for _, o := range all {
		switch {
		case o.Name != opts.Name:
		case opts.Replace && o.Role == RoleAdmin && opts.Role != RoleAdmin:
			return a.keepsAnAdmin(all, o.Name)
		case opts.Replace || !o.RevokedAt.IsZero():
			return nil
		default:
			return conflict("choose another name, or give it new credentials with --force (this revokes the old ones)", "there is an operator %s already", o.Name)
		}
	}
	if len(all) >= maxOperators {
		return conflict("give a name that is used no more new credentials with --force", "there are %d operators, which is the most there may be", len(all))
	}
	return nil
}

// keepsAnAdmin refuses to end the last admin whose certificate is valid.
func (a *Operators) keepsAnAdmin(all []store.Operator, but string) error {
	if slices.ContainsFunc(all, func(o store.Operator) bool {
		return o.Name != but && o.Role == RoleAdmin && o.RevokedAt.IsZero() && a.now().Before(o.ExpiresAt)
	}) {
		return nil
	}
	return conflict("create another admin first: `pipeops-controlplane operator create NAME --role admin -o FILE`", "operator %s is the only admin", but)
}

// Revoke refuses an operator's certificate from now on.
func (a *Operators) Revoke(ctx context.Context, name string) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		found, err := tx.Operator(ctx, name)
		if errors.Is(err, store.ErrNotFound) {
			return missing("`pipeops-controlplane operator list` shows them", "there is no operator %q", name)
		}
		if err != nil || !found.RevokedAt.IsZero() {
			return err
		}
		if found.Role == RoleAdmin {
			all, err := tx.Operators(ctx)
			if err == nil {
				err = a.keepsAnAdmin(all, name)
			}
			if err != nil {
				return err
			}
		}
		found.RevokedAt = a.now()
		if _, err := tx.DeleteActingOperator(ctx, name); err != nil {
			return err
		}
		if _, err := tx.EndConsoleSessions(ctx, name, a.now()); err != nil {
			return err
		}
		return tx.PutOperator(ctx, found)
	})
}

// First creates the first admin if there is no operator yet. It returns false if there was one.
func (a *Operators) First(ctx context.Context) (Credentials, bool, error) {
	all, err := a.store.Operators(ctx)
	if err != nil || len(all) > 0 {
		return Credentials{}, false, err
	}
	c, err := a.Create(ctx, OperatorOptions{Name: FirstOperator, Role: RoleAdmin, TTL: MaxOperatorTTL, reason: "first start"})
	return c, err == nil, err
}
