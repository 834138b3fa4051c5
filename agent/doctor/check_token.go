package doctor

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
)

const noneNeeded = "none is needed: this agent has an identity"

// tokenLeft warns of an enrolment token that a registered agent still has beside it, while
// it is good for anything. The environment of a pod holds the token that it was started with,
// so that what counts there is the Secret.
func (e *exam) tokenLeft(ctx context.Context) []Finding {
	if e.Config.TokenSecret == "" {
		return e.tokenBeside(ctx)
	}
	if e.Kubernetes == nil {
		return skipped(noneNeeded)
	}
	client, err := kube.New(e.Kubernetes, kube.Options{Namespace: e.Config.Namespace})
	if err != nil {
		return failure(err, fixConfiguration)
	}
	secret := client.EnrolmentSecret(e.Config.TokenSecret)
	byHand := fmt.Sprintf(`kubectl -n %s patch secret %s --type=merge -p '{"data":{"%s":null}}'`, e.Config.Namespace, e.Config.TokenSecret, kube.EnrolmentKey)
	token, err := secret.Token(ctx)
	if err != nil {
		return warning("the agent may not look whether the token is still in "+secret.String()+"; "+noneNeeded,
			"apply the Role pipeops-agent-token of deployments/agent.yaml (with Helm: agent.removeToken=true); or "+byHand)
	}
	return e.judgeLeft(ctx, token, secret.String(), byHand+"; or end the token: pipeops-controlplane token revoke")
}

// tokenBeside checks an agent that removes no token: one that is a process, or one whose owner has
// disabled that.
func (e *exam) tokenBeside(ctx context.Context) []Finding {
	if file := e.Config.TokenFile; file != "" {
		return e.judgeLeft(ctx, e.Config.Token, file, "empty the file, and keep it: truncate -s 0 "+file)
	}
	return e.judgeLeft(ctx, e.Config.Token, "AGENT_TOKEN",
		"take it out of the agent's configuration; in a pod: out of its Secret, or set PIPEOPS_TOKEN_SECRET (with Helm: agent.removeToken=true)")
}

func (e *exam) judgeLeft(ctx context.Context, text, where, fix string) []Finding {
	if text == "" {
		return ok("none, and " + noneNeeded)
	}
	token, err := controlapi.ParseToken(text)
	if err == nil && !e.hasFailed("tls") {
		_, err = e.checkToken(ctx, token)
	}
	if err != nil {
		return ok("the one in " + where + " is not accepted any more, and " + noneNeeded)
	}
	return warning("is still in "+where+", and "+noneNeeded+"; anyone who reads it can enrol an agent", fix)
}
