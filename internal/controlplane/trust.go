package controlplane

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

const (
	// followEvery is how often a control plane checks whether a command changed the CA, which reads
	// a file of some kilobytes. A CA in the database reports changes itself; followAnyway is the
	// interval in case such a report was lost.
	followEvery  = time.Second
	followAnyway = 15 * time.Second
	// tellAfter is how long the other control planes have to learn of a change before agents ask
	// one of them.
	tellAfter = time.Second
	// warnEvery and warnBefore control the warnings about a CA that expires.
	warnEvery  = 24 * time.Hour
	warnBefore = 180 * 24 * time.Hour
	// renewalBeats is how many heartbeat intervals agents have for renewal after another CA signs:
	// ten minutes by default.
	renewalBeats = 20
)

// followCA applies the changes that commands make to the CA, and warns before it expires.
func (c *ControlPlane) followCA(ctx context.Context) error {
	var said, failed string
	var warned time.Time
	for ctx.Err() == nil {
		changed, err := c.ca.Reload()
		switch {
		case err != nil && err.Error() != said:
			c.cfg.Log.Error().Err(err).Msg("the CA cannot be read again; going on with what it was")
		case err == nil && changed:
			c.cfg.Log.Info().Str("stage", string(c.ca.Stage())).Str("signs", controlapi.Fingerprint(c.ca.Certificate())).Msg("the CA changed")
			c.tellAll(ctx)
		}
		if said = ""; err != nil {
			said = err.Error()
		}
		if now := c.cfg.Now(); now.Sub(warned) >= warnEvery {
			warned = now
			c.warnOfEnd(now)
		}
		c.renewIntermediates(&failed)
		c.awaitCA(ctx)
	}
	return nil
}

// awaitCA waits until it is time to check the CA again.
func (c *ControlPlane) awaitCA(ctx context.Context) {
	if c.replicas == nil {
		retry.Wait(ctx, followEvery)
		return
	}
	timer := time.NewTimer(followAnyway)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-c.caChanged:
	}
}

// lookAtCA makes followCA check the CA soon.
func (c *ControlPlane) lookAtCA() {
	select {
	case c.caChanged <- struct{}{}:
	default: // a check is already scheduled
	}
}

// tellAll makes connected agents learn of a change now. All others learn of it with their next
// heartbeat.
func (c *ControlPlane) tellAll(ctx context.Context) {
	if c.replicas != nil { // each control plane informs the agents that are connected to it
		retry.Wait(ctx, tellAfter)
		c.refresher.lookAtAll()
		return
	}
	err := c.store.Update(ctx, func(tx *store.Tx) error { return tx.AddNews(ctx, store.EveryAgent) })
	if err != nil {
		c.cfg.Log.Warn().Err(err).Msg("refresh requests to agents failed; they learn the news with their next heartbeats")
		return
	}
	c.refresher.look()
}

func (c *ControlPlane) warnOfEnd(now time.Time) {
	if end := c.ca.Certificate().NotAfter; now.Add(warnBefore).After(end) {
		c.cfg.Log.Warn().Time("notAfter", end).Str("fix", "pipeops-controlplane ca rotate start").
			Msg("the CA ends, and with it all certificates: rotate it")
	}
	if _, err := c.ca.UpkeepDue(); err != nil {
		c.cfg.Log.Warn().Err(err).Time("notAfter", c.ca.IntermediatesEnd()).Str("fix", "pipeops-controlplane ca root import FILE").
			Msg("intermediate CAs end, and with them all certificates")
	}
}

// readyCA makes sure that there are intermediate CAs for the control plane's domains.
func (c *ControlPlane) readyCA() error {
	due, err := c.ca.UpkeepDue()
	switch {
	case err != nil && c.ca.ForDomains():
		return nil // there is time: warnOfEnd says so
	case err != nil || !due:
		return err
	}
	return c.upkeepCA()
}

// renewIntermediates replaces intermediate CAs in time. Where the root's key is away, warnOfEnd says
// so.
func (c *ControlPlane) renewIntermediates(failed *string) {
	due, err := c.ca.UpkeepDue()
	if !due || err != nil {
		return
	}
	err = c.upkeepCA()
	if err == nil {
		*failed = ""
		c.cfg.Log.Info().Time("notAfter", c.ca.IntermediatesEnd()).Msg("intermediate CAs were renewed")
		return
	}
	if err.Error() != *failed {
		*failed = err.Error()
		c.cfg.Log.Error().Err(err).Msg("intermediate CAs were not renewed; trying again")
	}
}

func (c *ControlPlane) upkeepCA() (err error) {
	lock, err := lockDir(filepath.Join(c.cfg.DataDir, fileCALock), caBusy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	_, err = c.ca.Upkeep()
	return err
}

// Heartbeat implements controlapi.Backend.
func (r *registry) Heartbeat(ctx context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	answer, err := r.takeBeat(ctx, agentID, beat)
	if err != nil {
		return answer, err
	}
	cert := presentedOf(ctx)
	if err := r.noteAgent(ctx, agentID, beat.CABundleHash, cert); err != nil {
		return answer, err
	}
	r.tellCAs(&answer, beat.CABundleHash, cert)
	return answer, nil
}

// tellCAs puts into the answer what an agent needs to follow a rotation of the CA.
func (r *registry) tellCAs(answer *controlapi.HeartbeatAnswer, reported string, cert *x509.Certificate) {
	bundle := string(r.ca.Bundle())
	answer.CABundleHash = controlapi.BundleHash(bundle)
	if reported != "" && reported != answer.CABundleHash {
		answer.CAs = &controlapi.CAs{Bundle: bundle, Former: string(r.ca.Former())}
	}
	switch {
	case cert == nil || r.ca.Current(cert):
	case r.ca.Trusted(cert):
		answer.RenewWithin = renewalBeats * seconds(r.cfg.HeartbeatInterval)
	default: // it gets no tunnel with that
		answer.RenewWithin = 1
	}
}

// trustOf returns what is known about a Runner from its certificate.
func trustOf(c *ca.CA, runner string, cert *x509.Certificate) store.RunnerTrust {
	return store.RunnerTrust{Runner: runner, Serial: cert.SerialNumber.Text(16), Key: keyPrint(cert), Issuer: c.RootID(cert)}
}

// putRunnerTrust records a certificate that was issued to a Runner.
func putRunnerTrust(ctx context.Context, tx *store.Tx, c *ca.CA, runner string, issued ca.Issued) error {
	cert, err := ca.ParseCertificate(issued.Certificate)
	if err != nil {
		return err
	}
	return tx.PutRunnerTrust(ctx, trustOf(c, runner, cert))
}

// noteRunner records which CA's certificate a Runner uses. A certificate of a former CA, whose key
// may have leaked, must contain the key on record.
func (p *peers) noteRunner(ctx context.Context, runner string, cert *x509.Certificate) error {
	now := trustOf(p.ca, runner, cert)
	known, err := p.store.RunnerTrust(ctx, runner)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	switch {
	case known == now:
		return nil
	case known.Serial != now.Serial || known.Key != now.Key:
		return controlapi.Errorf(controlapi.CodeCertificateUnknown, "make new credentials with `pipeops-controlplane runner create "+runner+" -o FILE --force`",
			"the certificate of Runner %s is not over the key on record", runner)
	}
	return p.store.PutRunnerTrust(ctx, now)
}

// namingIssuer names the CA that signs for Runners now in each answer to one.
func (p *peers) namingIssuer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(login.HeaderIssuer, p.ca.SignerID(ca.RoleRunner))
		next.ServeHTTP(w, r)
	})
}
