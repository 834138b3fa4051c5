package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
)

const noneNeeded = "none is needed: this agent has an identity"

// token asks what the enrolment token is good for, without using it. An agent
// that has an identity needs none.
func (a *admission) token(ctx context.Context) []Finding {
	if a.id != nil {
		return a.tokenLeft(ctx)
	}
	if a.Config.Token == "" {
		return failed("AGENT_TOKEN is not set, and this agent has no identity yet",
			"make one with `pipeops-controlplane token create`, and set AGENT_TOKEN or AGENT_TOKEN_FILE")
	}
	token, err := controlapi.ParseToken(a.Config.Token)
	if err == nil && a.failures.has("tls") {
		return skipped("has the right form; whether it is accepted could not be asked")
	}
	var state controlapi.TokenState
	if err == nil {
		state, err = a.checkToken(ctx, token)
	}
	if err != nil {
		return failure(err, "make a new one with `pipeops-controlplane token create`")
	}
	a.endpoint = state.Tunnel
	if state.Enrolment != nil {
		return enrolment(*state.Enrolment)
	}
	return ok("token " + state.ID + " is good for " + goodFor(state))
}

// enrolment returns what a registration waits for, where an operator decides on it.
func enrolment(s controlapi.EnrolmentState) []Finding {
	fix := "on the control plane: `pipeops-controlplane agent approve " + s.ID + "`"
	switch s.State {
	case "approved":
		return ok("this agent's registration is approved")
	case "denied":
		detail := "the operator has denied this agent's registration"
		if s.Reason != "" {
			detail += ": " + s.Reason
		}
		return failed(detail, "ask the operator, who can still do `pipeops-controlplane agent approve "+s.ID+"`")
	}
	return failed("this agent's registration waits for approval", fix)
}

func (a *admission) checkToken(ctx context.Context, token controlapi.Token) (controlapi.TokenState, error) {
	client, err := a.network.client(controlapi.Origin{})
	if err != nil {
		return controlapi.TokenState{}, err
	}
	defer client.Close()
	var check controlapi.TokenCheck
	if a.asked != nil {
		if check.Key, err = controlapi.KeyFingerprint(a.asked); err != nil {
			return controlapi.TokenState{}, err
		}
	}
	if token, err = a.Config.Prove(token); err != nil {
		return controlapi.TokenState{}, err
	}
	return client.CheckToken(ctx, token, check)
}

func goodFor(s controlapi.TokenState) string {
	text := "any number of registrations"
	if s.UsesLeft != nil {
		text = fmt.Sprintf("%d more registrations", *s.UsesLeft)
	}
	if !s.ExpiresAt.IsZero() {
		text += ", until " + s.ExpiresAt.UTC().Format(time.RFC3339)
	}
	if s.Approval {
		text += "; an operator approves them"
	}
	return text
}

// tokenLeft warns of an enrolment token that a registered agent still has beside it, while
// it is good for anything. The environment of a pod holds the token that it was started with,
// so that what counts there is the Secret.
func (a *admission) tokenLeft(ctx context.Context) []Finding {
	if a.Config.PublicToken() {
		return ok("has no secret, and " + noneNeeded)
	}
	if a.Config.TokenSecret == "" {
		return a.tokenBeside(ctx)
	}
	if a.Kubernetes == nil {
		return skipped(noneNeeded)
	}
	client, err := kube.New(a.Kubernetes, kube.Options{Namespace: a.Config.Namespace})
	if err != nil {
		return failure(err, fixConfiguration)
	}
	secret := client.EnrolmentSecret(a.Config.TokenSecret)
	byHand := fmt.Sprintf(`kubectl -n %s patch secret %s --type=merge -p '{"data":{"%s":null}}'`, a.Config.Namespace, a.Config.TokenSecret, kube.EnrolmentKey)
	token, err := secret.Token(ctx)
	if err != nil {
		return warning("the agent may not look whether the token is still in "+secret.String()+"; "+noneNeeded,
			"apply the Role pipeops-agent-token of deployments/agent.yaml (with Helm: agent.removeToken=true); or "+byHand)
	}
	return a.judgeLeft(ctx, token, secret.String(), byHand+"; or end the token: pipeops-controlplane token revoke")
}

// tokenBeside checks an agent that removes no token: one that is a process, or one whose owner has
// disabled that.
func (a *admission) tokenBeside(ctx context.Context) []Finding {
	if file := a.Config.TokenFile; file != "" {
		return a.judgeLeft(ctx, a.Config.Token, file, "empty the file, and keep it: truncate -s 0 "+file)
	}
	return a.judgeLeft(ctx, a.Config.Token, "AGENT_TOKEN",
		"take it out of the agent's configuration; in a pod: out of its Secret, or set PIPEOPS_TOKEN_SECRET (with Helm: agent.removeToken=true)")
}

func (a *admission) judgeLeft(ctx context.Context, text, where, fix string) []Finding {
	if text == "" {
		return ok("none, and " + noneNeeded)
	}
	token, err := controlapi.ParseToken(text)
	if err == nil && !a.failures.has("tls") {
		_, err = a.checkToken(ctx, token)
	}
	if err != nil {
		return ok("the one in " + where + " is no longer accepted, and " + noneNeeded)
	}
	return warning("is still in "+where+", and "+noneNeeded+"; anyone who reads it can enrol an agent", fix)
}
