// Package enrolment decides who becomes an agent: tokens, registrations, approvals, and renewals of
// agents' certificates.
package enrolment

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// Registrar decides who becomes an agent, and renews agents' certificates. It has a part of
// controlapi.Backend.
type Registrar struct {
	cfg       Config
	store     *store.Store
	ca        *ca.CA
	authn     *authn.Authenticator
	directory discovery.Directory
}

// Config is what an agent is told when it registers.
type Config struct {
	TrustDomain    string
	CertificateTTL time.Duration
	// Heartbeats is the interval of heartbeats in seconds.
	Heartbeats int
	// Tunnel is this control plane's endpoint, and Tunnels are those of all of several.
	Tunnel  controlapi.TunnelEndpoint
	Tunnels func(agentID string) []controlapi.TunnelEndpoint
	// Edge returns where Runners reach an agent that registers now.
	Edge func() string
	// Record keeps a registration by a service-account token in the audit log of operators, and
	// issues the certificate unless it was refused.
	Record func(ctx context.Context, j Join, refused error, issue func(context.Context) error) error
	Log    zerolog.Logger
	Now    func() time.Time
}

// New returns what registers agents.
func New(s *store.Store, authority *ca.CA, callers *authn.Authenticator, d discovery.Directory, cfg Config) *Registrar {
	return &Registrar{cfg: cfg, store: s, ca: authority, authn: callers, directory: d}
}

// Register implements controlapi.Backend.
func (r *Registrar) Register(ctx context.Context, text string, req controlapi.RegisterRequest) (controlapi.Identity, error) {
	now := r.cfg.Now()
	token, err := readToken(text)
	if err != nil {
		return controlapi.Identity{}, err
	}
	if skewed := controlapi.ClockSkew(req.Clock, now); skewed != nil {
		return controlapi.Identity{}, skewed
	}
	csr, err := r.request(req.CSR)
	if err != nil {
		return controlapi.Identity{}, err
	}
	if err := CheckLabels(req.Labels); err != nil {
		return controlapi.Identity{}, err
	}
	proof, refused := r.prove(ctx, token)
	var agent store.Agent
	if refused == nil {
		var held *problem.Error
		refused = r.store.Update(ctx, func(tx *store.Tx) error {
			agent, held, err = r.enrol(ctx, tx, token, proof, req, fingerprintOf(csr), now)
			return err
		})
		if refused == nil && held != nil {
			return controlapi.Identity{}, held
		}
	}
	var id controlapi.Identity
	err = r.record(ctx, token, proof, req.Name, refused, func(context.Context) error {
		r.cfg.Log.Info().Str("agent", agent.ID).Str("name", agent.Name).Str("token", token.ID).Msg("agent registered")
		id, err = r.identity(csr, agent.ID, "registration with token "+token.ID)
		return err
	})
	return id, err
}

// record issues a certificate, unless the registration was refused. The audit log of operators has
// both for a service-account token. It has no attempts that were neither accepted nor refused.
func (r *Registrar) record(ctx context.Context, token controlapi.Token, proof proven, name string, refused error, issue func(context.Context) error) error {
	known, ok := problem.Of(refused)
	switch {
	case token.Public() && (refused == nil || ok && !known.Passing() && known.Code != controlapi.CodeTokenUnknown):
		return r.cfg.Record(ctx, proof.join(token, name), refused, issue)
	case refused != nil:
		return refused
	}
	return issue(ctx)
}

// enrol finds or creates the agent of a cluster and takes a use of the token. If the registration
// must wait for the operator, it returns the answer for the agent as held, and creates no agent.
func (r *Registrar) enrol(ctx context.Context, tx *store.Tx, token controlapi.Token, proof proven, req controlapi.RegisterRequest, key string, now time.Time) (_ store.Agent, held *problem.Error, _ error) {
	none := store.Agent{}
	known, err := knownToken(ctx, tx, token)
	if err != nil {
		return none, nil, err
	}
	if err := proof.take(ctx, tx, key); err != nil {
		return none, nil, err
	}
	agent, err := agentOfCluster(ctx, tx, req.ClusterUID)
	if err != nil {
		return none, nil, err
	}
	place := registration{directory: r.directory, edge: r.cfg.Edge(), now: now}
	// The same request again takes no other use: its answer was lost, or it was approved meanwhile.
	repeated := agent.ID != "" && agent.Key == key && agent.TokenID == known.ID
	ended := endedToken(known, now)
	switch {
	case repeated && known.Approve: // regardless of the token's state, or the approval would be in vain
	case problem.Is(ended, controlapi.CodeTokenRevoked):
		return none, nil, ended
	case known.Approve:
		held, err = place.hold(ctx, tx, known, agent, req, key)
		return none, held, err
	case !repeated && ended != nil:
		return none, nil, ended
	}
	if err := place.free(ctx, tx, agent, req.Name); err != nil {
		return none, nil, err
	}
	if agent, err = place.put(ctx, tx, agent, req, known, key); err != nil {
		return none, nil, err
	}
	if err := tx.UseToken(ctx, token.ID, agent.ID, now, !repeated); err != nil {
		return none, nil, err
	}
	return agent, nil, nil
}

// agentOfCluster returns the agent of a cluster; its ID is empty if there is none.
func agentOfCluster(ctx context.Context, tx *store.Tx, uid string) (store.Agent, error) {
	agent, err := tx.AgentOfCluster(ctx, uid)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Agent{}, nil
	case err != nil:
		return store.Agent{}, err
	}
	return agent, nil
}

// registration is what is needed to turn a registration into an agent.
type registration struct {
	directory discovery.Directory
	edge      string
	now       time.Time
	id        string // the new agent's; empty to generate one
}

// free returns an error if the cluster, or its name, may not register.
func (e registration) free(ctx context.Context, tx *store.Tx, agent store.Agent, name string) error {
	if agent.Revoked() {
		return authn.RevokedAgent(agent)
	}
	return nameFree(ctx, tx, name, agent.ID)
}

func nameFree(ctx context.Context, tx *store.Tx, name, agentID string) error {
	other, err := tx.AgentNamed(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case other.ID == agentID || other.Revoked():
		return nil
	}
	return controlapi.Errorf(controlapi.CodeNameTaken, "set CLUSTER_NAME to another name; if that cluster is gone for good, run `pipeops-controlplane agent revoke "+name+"`",
		"another cluster is registered with the name %q", name).WithField("name")
}

// put writes the agent with what it reported about itself.
func (e registration) put(ctx context.Context, tx *store.Tx, a store.Agent, req controlapi.RegisterRequest, token store.Token, key string) (store.Agent, error) {
	before := a
	if a.ID == "" {
		a = store.Agent{ID: cmp.Or(e.id, store.NewID()), ClusterUID: req.ClusterUID, State: announce.StatePending, RegisteredAt: e.now}
	}
	if a.Key != key { // another installation: the earlier one's certificates end
		a.Key, a.PreviousKey = key, ""
	}
	a.Name, a.TokenID, a.LastSeen, a.EdgeAddress = req.Name, token.ID, e.now, e.edge
	a.Labels = mergeLabels(req.Labels, token.Labels)
	a.AgentVersion, a.RunnerAPIVersion = req.AgentVersion, req.RunnerAPIVersion
	a.KubernetesVersion, a.Distribution, a.Provider = req.KubernetesVersion, req.Distribution, req.Provider
	a.Capacity = discovery.CapacityOf(req.Capacity)
	if err := e.write(ctx, tx, before, a); err != nil {
		return store.Agent{}, err
	}
	return a, nil
}

// write stores an agent, and announces what Runners see of the change.
func (e registration) write(ctx context.Context, tx *store.Tx, before, a store.Agent) error {
	switch {
	case before.ID == "":
		if err := tx.InsertAgent(ctx, a); err != nil {
			return err
		}
		return e.directory.Write(ctx, tx, announce.AgentRegistered, a, e.now)
	case discovery.SameForRunners(before, a):
		return tx.UpdateAgent(ctx, a)
	case !maps.Equal(before.Labels, a.Labels):
		return e.directory.Relabel(ctx, tx, before, a, e.now)
	}
	return e.directory.Write(ctx, tx, announce.AgentUpdated, a, e.now)
}

// mergeLabels merges both sets of labels; the operator's labels, from the token, win.
func mergeLabels(own, operators map[string]string) map[string]string {
	merged := make(map[string]string, len(own)+len(operators))
	maps.Copy(merged, own)
	maps.Copy(merged, operators)
	return merged
}

// CheckLabels refuses labels that no agent may have.
func CheckLabels(labels map[string]string) error {
	for k, v := range labels {
		if k == "" || len(k) > 253 || len(v) > 256 {
			return problem.Errorf(problem.Invalid, "use keys of 1 to 253 and values of at most 256 characters", "a label is too long or has no key").WithField("labels")
		}
		if k != printable.Text(k) || v != printable.Text(v) {
			return problem.Errorf(problem.Invalid, "use characters that can be seen", "a label has control or hidden characters, or invalid UTF-8").WithField("labels")
		}
	}
	return nil
}

func (r *Registrar) request(text string) (*x509.CertificateRequest, error) {
	csr, err := ca.ParseRequest(text)
	if err != nil {
		return nil, problem.Errorf(problem.Invalid, "send a certificate request with an ECDSA P-256 key", "the certificate request was refused: %v", err).WithField("csr")
	}
	return csr, nil
}

func (r *Registrar) identity(csr *x509.CertificateRequest, agentID, reason string) (controlapi.Identity, error) {
	name := r.directory.ServerName(agentID)
	issued, err := r.ca.Agent(csr, name, credentials.AgentURI(r.cfg.TrustDomain, agentID), r.cfg.CertificateTTL, reason)
	if err != nil {
		return controlapi.Identity{}, err
	}
	return controlapi.Identity{
		AgentID: agentID, Certificate: issued.Certificate, CABundle: string(r.ca.Bundle()),
		FormerCAs: string(r.ca.Former()), Tunnel: r.cfg.Tunnel, Tunnels: r.cfg.Tunnels(agentID), ServerName: name, TrustDomain: r.cfg.TrustDomain, HeartbeatInterval: r.cfg.Heartbeats,
	}, nil
}

func fingerprintOf(csr *x509.CertificateRequest) string {
	return controlapi.Fingerprint(&x509.Certificate{RawSubjectPublicKeyInfo: csr.RawSubjectPublicKeyInfo})
}
