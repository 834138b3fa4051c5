package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
)

const fixURL = "make sure that PIPEOPS_CONTROL_PLANE_URL is a control plane's"

// controlPlane asks the control plane how it is.
func (e *exam) controlPlane(ctx context.Context) []Finding {
	trust, _, err := e.trust()
	if err != nil {
		return failure(err, fixConfiguration)
	}
	answer, err := e.get(ctx, trust, "/readyz")
	if err != nil {
		return failure(e.explain(err), fixURL)
	}
	var state struct {
		Ready  *bool             `json:"ready"`
		Checks map[string]string `json:"checks"`
	}
	if err := json.Unmarshal(answer.body, &state); err != nil || state.Ready == nil {
		return failed(fmt.Sprintf("what answers at %s is no control plane: %d %s", e.target.Host, answer.status, http.StatusText(answer.status)), fixURL)
	}
	if *state.Ready {
		return ok("is ready")
	}
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(state.Checks)) {
		if strings.HasPrefix(state.Checks[name], "failed") {
			bad = append(bad, name+" "+state.Checks[name])
		}
	}
	return failed("is not ready: "+strings.Join(bad, "; "), "ask its operator to look at its log; the agent tries again by itself")
}

// client makes the agent's calls, once each.
func (e *exam) client(from controlapi.Origin) (*controlapi.Client, error) {
	trust, _, err := e.trust()
	if err != nil {
		return nil, err
	}
	return controlapi.NewClient(controlapi.ClientConfig{
		URL: e.Config.ControlPlaneURL, TLS: func() *tls.Config { return trust }, Log: zerolog.Nop(), Now: e.Now, Retries: -1,
		Origin: func() controlapi.Origin { return from },
		Proxy:  func(r *http.Request) (*url.URL, error) { return e.proxies(r.URL) },
	})
}

// registration asks whether the control plane accepts this agent.
func (e *exam) registration(ctx context.Context) []Finding {
	switch {
	case e.id == nil:
		return skipped("this agent has not registered yet")
	case e.Now().After(e.id.NotAfter()):
		return skipped("the agent's certificate has expired; it gets a new one when it starts")
	}
	k, err := kube.New(e.restConfig(), kube.Options{Namespace: e.Config.Namespace})
	if err != nil {
		return failure(err, fixConfiguration)
	}
	from := controlapi.Origin{}
	if from.ClusterUID, err = k.ClusterUID(ctx); err != nil {
		return failure(err, "let the agent read the namespace kube-system")
	}
	client, err := e.client(from)
	if err != nil {
		return failure(err, fixConfiguration)
	}
	defer client.Close()
	if err := client.CheckIdentity(ctx); err != nil {
		return failure(err, "register again: `pipeops-controlplane token create`")
	}
	return ok("the control plane accepts agent " + e.id.AgentID)
}

// token asks what the enrolment token is good for, without using it. An agent
// that has an identity needs none.
func (e *exam) token(ctx context.Context) []Finding {
	if e.id != nil {
		return e.tokenLeft(ctx)
	}
	if e.Config.Token == "" {
		return failed("AGENT_TOKEN is not set, and this agent has no identity yet",
			"make one with `pipeops-controlplane token create`, and set AGENT_TOKEN or AGENT_TOKEN_FILE")
	}
	token, err := controlapi.ParseToken(e.Config.Token)
	if err == nil && e.hasFailed("tls") {
		return skipped("has the right form; whether it is accepted could not be asked")
	}
	var state controlapi.TokenState
	if err == nil {
		state, err = e.checkToken(ctx, token)
	}
	if err != nil {
		return failure(err, "make a new one with `pipeops-controlplane token create`")
	}
	e.endpoint = state.Tunnel
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

func (e *exam) checkToken(ctx context.Context, token controlapi.Token) (controlapi.TokenState, error) {
	client, err := e.client(controlapi.Origin{})
	if err != nil {
		return controlapi.TokenState{}, err
	}
	defer client.Close()
	var check controlapi.TokenCheck
	if e.asked != nil {
		if check.Key, err = controlapi.KeyFingerprint(e.asked); err != nil {
			return controlapi.TokenState{}, err
		}
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
