package agents

import (
	"context"
	"crypto/x509"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
)

// renewalBeats is how many heartbeat intervals agents have for renewal after another CA signs: ten
// minutes by default.
const renewalBeats = 20

// Heartbeat implements controlapi.Backend.
func (r *Fleet) Heartbeat(ctx context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	answer, err := r.takeBeat(ctx, agentID, beat)
	if err != nil {
		return answer, err
	}
	cert := authn.PresentedOf(ctx)
	if err := r.noteAgent(ctx, agentID, beat.CABundleHash, cert); err != nil {
		return answer, err
	}
	r.tellCAs(&answer, beat.CABundleHash, cert)
	return answer, nil
}

// tellCAs puts into the answer what an agent needs to follow a rotation of the CA.
func (r *Fleet) tellCAs(answer *controlapi.HeartbeatAnswer, reported string, cert *x509.Certificate) {
	bundle := string(r.ca.Bundle())
	answer.CABundleHash = controlapi.BundleHash(bundle)
	if reported != "" && reported != answer.CABundleHash {
		answer.CAs = &controlapi.CAs{Bundle: bundle, Former: string(r.ca.Former())}
	}
	switch {
	case cert == nil || r.ca.Current(cert):
	case r.ca.Trusted(cert):
		answer.RenewWithin = renewalBeats * r.cfg.Heartbeats
	default: // it gets no tunnel with that
		answer.RenewWithin = 1
	}
}
