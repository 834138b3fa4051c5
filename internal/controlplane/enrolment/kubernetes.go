package enrolment

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

const (
	// maxProofLife bounds the lifetime of a service-account token.
	maxProofLife = time.Hour
	// proofRetry is when an agent sends a service-account token again. Meanwhile the kubelet
	// replaces the file, or the operator corrects the token.
	proofRetry = 30 * time.Second
	// maxShown bounds a text of a service-account token in an error, in bytes.
	maxShown = 200

	subjectPrefix = "system:serviceaccount:"

	fixProof = "compare the agent's volume with `pipeops-controlplane token list -o yaml`; `token rotate ID --kubernetes-jwks FILE` takes new keys"
)

// Join is an attempt to register by a service-account token, for the audit log.
type Join struct {
	Token string `json:"token"`
	Agent string `json:"agent"` // the name that it gives itself
	// What follows is empty if the service-account token proved nothing.
	Subject string `json:"subject,omitempty"`
	Pod     string `json:"pod,omitempty"`
	Node    string `json:"node,omitempty"`
}

// proven is what a service-account token proves; none for a token with a secret.
type proven struct {
	*openid.Proof
	pod, node string
}

// bound are the claims that Kubernetes adds to a token.
type bound struct {
	Pod  object `json:"pod"`
	Node object `json:"node"`
}

type object struct {
	Name string `json:"name"`
}

// subject returns the subject of the tokens of a service account.
func subject(to *store.Kubernetes) string { return subjectPrefix + to.ServiceAccount }

// prove verifies the service-account token that stands for a secret.
func (r *Registrar) prove(ctx context.Context, token controlapi.Token) (proven, error) {
	if !token.Public() {
		return proven{}, nil
	}
	known, err := knownToken(ctx, r.store, token)
	if err != nil {
		return proven{}, err
	}
	to := known.Kubernetes
	if issuer := idtoken.UnverifiedIssuer(token.Proof()); issuer != "" && issuer != to.Issuer { // its keys would only be unknown
		return proven{}, notProven(fixProof, "its issuer (iss) is %q, and not %q", printable.Shorten(issuer, maxShown), to.Issuer)
	}
	keys, err := idtoken.ParseKeys(to.Keys)
	if err != nil {
		return proven{}, err
	}
	verified, err := keys.Verify(ctx, to.Issuer, to.Audience, token.Proof(), r.cfg.Now)
	if err != nil {
		return proven{}, notProven(fixProof, "%s", printable.Shorten(printable.Text(err.Error()), 3*maxShown))
	}
	proof, err := openid.ProofOf(verified)
	if err != nil {
		return proven{}, notProven(fixProof, "%s", err.Error())
	}
	return r.boundToPod(proof, to)
}

// boundToPod returns what a verified token proves, if it is a short-lived one of a pod of the
// service account.
func (r *Registrar) boundToPod(proof openid.Proof, to *store.Kubernetes) (proven, error) {
	var claims bound
	err := json.Unmarshal(proof.Claims["kubernetes.io"], &claims)
	p := proven{&proof, claims.Pod.Name, claims.Node.Name}
	switch {
	case proof.Subject != subject(to):
		return p, notProven(fixProof, "its subject (sub) is %q, and not %q", printable.Shorten(printable.Text(proof.Subject), maxShown), subject(to))
	case err != nil || claims.Pod.Name == "":
		return p, notProven("mount a projected service-account token", "it is not bound to a pod")
	case proof.Issued.After(r.cfg.Now().Add(controlapi.MaxClockSkew)):
		return p, notProven("correct the clocks of the cluster's control plane and of this one", "it was issued in the future, at %s", proof.Issued.UTC().Format(time.RFC3339))
	case proof.Expires.Sub(proof.Issued) > maxProofLife:
		return p, notProven("set expirationSeconds of the volume to 600", "it is valid for longer than %s", maxProofLife)
	}
	return p, nil
}

// take has the service-account token be good for a key alone.
func (p proven) take(ctx context.Context, tx *store.Tx, key string) error {
	if p.Proof == nil {
		return nil
	}
	mine, err := p.Take(ctx, tx, key)
	if err == nil && !mine {
		err = notProven("wait until the kubelet has replaced it, or delete the pod", "it was used before, by the holder of another key")
	}
	return err
}

// join describes an attempt.
func (p proven) join(token controlapi.Token, name string) Join {
	j := Join{Token: token.ID, Agent: name, Pod: printable.Shorten(p.pod, maxShown), Node: printable.Shorten(p.node, maxShown)}
	if p.Proof != nil {
		j.Subject = printable.Shorten(printable.Text(p.Subject), maxShown)
	}
	return j
}

func notProven(fix, format string, args ...any) error {
	e := controlapi.Errorf(controlapi.CodeServiceAccountRefused, fix, format, args...)
	e.Detail = "the service-account token is not valid: " + e.Detail
	return e.WithRetryAfter(proofRetry)
}
