package administration

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// CAStatus is how the CA stands, and its rotation.
type CAStatus struct {
	Stage ca.Stage `json:"stage"`
	CAs   []CAInfo `json:"cas"`
	// NotReady are those that the next step would cut off until they are; empty
	// when it may be taken.
	NotReady []Dependant `json:"notReady"`
	// RootAway reports that the root CA's key was exported.
	RootAway bool `json:"rootAway"`
	// Warnings are for people.
	Warnings []string `json:"warnings,omitempty"`
}

// The roles of a CA.
const (
	CASigns   = "signs"
	CATrusted = "trusted"
	CAFormer  = "former"
	// CASignsFor begins the role of an intermediate CA: signs for agent.
	CASignsFor = "signs for "
)

// CAInfo is the public information about a CA.
type CAInfo struct {
	Role        string    `json:"role"`
	Name        string    `json:"name"`
	Fingerprint string    `json:"fingerprint"` // as in tokens
	NotBefore   time.Time `json:"notBefore"`
	NotAfter    time.Time `json:"notAfter"`
}

// Dependant is an agent or a Runner that a step has to wait for.
type Dependant struct {
	Kind     string    `json:"kind"` // agent or runner
	Name     string    `json:"name"`
	ID       string    `json:"id,omitempty"`
	Reason   string    `json:"reason"`
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// NotReadyError lists who keeps a step from being taken.
type NotReadyError struct {
	Step     ca.Step
	NotReady []Dependant
}

func (e *NotReadyError) Error() string {
	names := make([]string, len(e.NotReady))
	for i, d := range e.NotReady {
		names[i] = d.Kind + " " + d.Name
	}
	return fmt.Sprintf("`ca rotate %s` would cut off %s; wait for them (`pipeops-controlplane ca get` says what for), "+
		"revoke those that are gone for good, or continue with --force: they come back by themselves when they are next online",
		e.Step, strings.Join(names, ", "))
}

// RotateOptions describe how a step is taken.
type RotateOptions struct {
	// Force takes it though some are not ready.
	Force bool
	// DryRun only reports whether it could be.
	DryRun bool
}

// Status returns how the CA and its rotation stand.
func (a *Authority) Status(ctx context.Context) (CAStatus, error) {
	if _, err := a.ca.Reload(); err != nil {
		return CAStatus{}, err
	}
	return a.caStatus(ctx, nextStep(a.ca.Stage()))
}

func nextStep(stage ca.Stage) ca.Step {
	switch stage {
	case ca.Introduced:
		return ca.Sign
	case ca.Signing:
		return ca.Finish
	}
	return ca.Start
}

// Rotate takes a step of the CA's rotation. A running control plane applies it within a second. A
// repeated step changes nothing and returns false.
func (a *Authority) Rotate(ctx context.Context, step ca.Step, opts RotateOptions) (status CAStatus, changed bool, err error) {
	release, err := a.lockCA()
	if err != nil {
		return status, false, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if _, err := a.ca.Check(step); err != nil {
		return status, false, stepRefused(err)
	}
	if status, err = a.caStatus(ctx, step); err != nil {
		return status, false, err
	}
	if len(status.NotReady) > 0 && !opts.Force {
		return status, false, &NotReadyError{Step: step, NotReady: status.NotReady}
	}
	if opts.DryRun || a.dry {
		return status, false, nil
	}
	if changed, err = a.ca.Take(step); err != nil {
		return status, false, err
	}
	status, err = a.caStatus(ctx, nextStep(a.ca.Stage()))
	return status, changed, err
}

// stepRefused returns the error for a step that does not fit the stage.
func stepRefused(err error) error {
	if _, ok := errors.AsType[*ca.RootAwayError](err); ok {
		return err
	}
	return conflict("", "%s", err.Error())
}

// lockCA keeps other commands from changing the CA, and reads it again.
func (a *Authority) lockCA() (release func() error, err error) {
	lock, err := a.data.LockCA()
	if err != nil {
		return nil, err
	}
	if _, err := a.ca.Reload(); err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return lock.Release, nil
}

// caStatus returns the agents and Runners that a step would have to wait for.
func (a *Authority) caStatus(ctx context.Context, step ca.Step) (CAStatus, error) {
	status := CAStatus{Stage: a.ca.Stage(), RootAway: a.ca.RootAway(), CAs: a.caInfos(), NotReady: []Dependant{}}
	if end := a.ca.Certificate().NotAfter; a.now().Add(castore.WarnBefore).After(end) {
		status.Warnings = append(status.Warnings, "the CA ends at "+end.Format(time.RFC3339)+", and with it all certificates; rotate it")
	}
	if _, err := a.ca.UpkeepDue(); err != nil {
		status.Warnings = append(status.Warnings, err.Error())
	}
	agents, err := a.store.Agents(ctx)
	if err != nil {
		return status, err
	}
	trusts, err := a.store.AgentTrusts(ctx)
	if err != nil {
		return status, err
	}
	of := map[string]store.AgentTrust{}
	for _, t := range trusts {
		of[t.AgentID] = t
	}
	for _, g := range agents {
		if reason := a.agentWaits(step, of[g.ID]); reason != "" && !g.Revoked() {
			status.NotReady = append(status.NotReady, Dependant{Kind: ca.RoleAgent, Name: g.Name, ID: g.ID, Reason: reason, LastSeen: g.LastSeen})
		}
	}
	runners, err := a.runnersWaiting(ctx, step)
	status.NotReady = append(status.NotReady, runners...)
	return status, err
}

// agentWaits returns what an agent lacks for a step.
func (a *Authority) agentWaits(step ca.Step, t store.AgentTrust) string {
	stage := a.ca.Stage()
	switch {
	case step == ca.Sign && stage == ca.Introduced:
		if t.Bundle == controlapi.BundleHash(string(a.ca.Bundle())) {
			return ""
		}
		if t.Bundle == "" {
			return "has not reported which CAs it trusts"
		}
		return "does not trust the new CA yet"
	case a.drops(step) != nil && (t.Issuer == "" || t.Issuer == ca.KeyID(a.ca.Other())):
		if t.Issuer == "" {
			if step == ca.Abort {
				return "" // it cannot have a certificate of a CA that did not sign
			}
			return "has not used a certificate yet"
		}
		return "uses a certificate of the CA that is to be dropped"
	}
	return ""
}

// drops returns the CA that a step would drop.
func (a *Authority) drops(step ca.Step) *x509.Certificate {
	stage := a.ca.Stage()
	if step == ca.Finish && stage == ca.Signing || step == ca.Abort && stage == ca.Introduced {
		return a.ca.Other()
	}
	return nil
}

// runnersWaiting returns the Runners whose certificates a step would end.
func (a *Authority) runnersWaiting(ctx context.Context, step ca.Step) ([]Dependant, error) {
	dropped := a.drops(step)
	if dropped == nil {
		return nil, nil
	}
	runners, err := a.store.Runners(ctx)
	if err != nil {
		return nil, err
	}
	trusts, err := a.store.RunnerTrusts(ctx)
	if err != nil {
		return nil, err
	}
	issuers := map[string]string{}
	for _, t := range trusts {
		issuers[t.Runner+" "+t.Serial] = t.Issuer
	}
	var waiting []Dependant
	for _, r := range runners {
		issuer, known := issuers[r.Name+" "+r.Serial]
		if r.OpenID != nil || // its certificates end soon, and it gets others
			!r.RevokedAt.IsZero() || !a.now().Before(r.ExpiresAt) || known && issuer != ca.KeyID(dropped) || !known && step == ca.Abort {
			continue
		}
		waiting = append(waiting, Dependant{Kind: ca.RoleRunner, Name: r.Name, Reason: "has its certificate from the CA that is to be dropped"})
	}
	return waiting, nil
}

func (a *Authority) caInfos() []CAInfo {
	infos := []CAInfo{infoOf(CASigns, a.ca.Certificate())}
	for _, c := range a.ca.Intermediates() {
		infos = append(infos, infoOf(CASignsFor+trustanchor.RoleOf(c), c))
	}
	if other := a.ca.Other(); other != nil {
		infos = append(infos, infoOf(CATrusted, other))
	}
	for _, c := range a.ca.FormerCAs() {
		infos = append(infos, infoOf(CAFormer, c))
	}
	return infos
}

func infoOf(role string, cert *x509.Certificate) CAInfo {
	return CAInfo{
		Role: role, Name: cert.Subject.CommonName, Fingerprint: controlapi.Fingerprint(cert),
		NotBefore: cert.NotBefore, NotAfter: cert.NotAfter,
	}
}
