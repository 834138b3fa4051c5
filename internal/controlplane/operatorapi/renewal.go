package operatorapi

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// RenewOperator renews the certificate with which it is called.
var RenewOperator = Call[RenewOperatorInput, administration.Renewed]{
	Description{Method: "POST", Path: Prefix + "certificate", ID: "renew-operator", Role: administration.RoleViewer, Command: "COMMAND --credentials FILE",
		Summary: "Renew the certificate of the operator who calls, with the same key"}, renewOperator,
}

// RenewOperatorInput has nothing but what every change has.
type RenewOperatorInput struct{ Write }

func renewOperator(ctx context.Context, a *administration.Admin, _ *RenewOperatorInput) (administration.Renewed, error) {
	at, isVisit := ctx.Value(visitKey{}).(*visit)
	if !isVisit || at.caller.Presented == nil {
		return administration.Renewed{}, problem.Errorf(problem.Conflict, "call with an operator's certificate", "there is no certificate to renew")
	}
	return a.Operators.Renew(ctx, at.caller.Operator.Name, at.caller.Presented)
}

// Renewal keeps a client's credentials valid: a call that finds two thirds of the certificate's
// life over renews it.
type Renewal struct {
	// Save keeps the renewed credentials.
	Save func(administration.Credentials) error
	// Note is called with the reason why the certificate was not renewed. It stays in use.
	Note func(error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	credentials administration.Credentials
}

// Renewing has a client renew its certificate. Call it before the first call, which is then the
// one that renews: programs with a client end soon.
func (c *Client) Renewing(r Renewal) {
	if r.Now == nil {
		r.Now = time.Now
	}
	r.credentials = c.credentials
	c.renewal = &r
}

// renew renews the certificate if that is due, once for each client. It is not an error of the call
// that came before.
func (c *Client) renew(ctx context.Context) {
	r := c.renewal
	if r == nil || !c.renewing.CompareAndSwap(false, true) { // the call that renews comes here too
		return
	}
	due, err := r.due()
	if err != nil || !due {
		return
	}
	answer, err := RenewOperator.Do(ctx, c, RenewOperatorInput{})
	if err == nil {
		next := r.credentials
		next.Certificate, next.CA = answer.Certificate, answer.CA
		if _, err = next.TLSConfig(); err == nil {
			err = r.Save(next)
		}
	}
	if err != nil {
		r.Note(fmt.Errorf("the certificate of operator %s was not renewed: %w", r.credentials.Operator, err))
	}
}

func (r *Renewal) due() (bool, error) {
	config, err := r.credentials.TLSConfig()
	if err != nil {
		return false, err
	}
	cert, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		return false, err
	}
	return !r.Now().Before(cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)), nil
}
