package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	kept "github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// login is the Runner's credentials, ready for use. Those that change while they
// are in use, the certificate, are taken from keep.
type login struct {
	runnerapi.Credentials
	keep *kept.Login
}

func (a *app) login() (*login, error) {
	path, err := a.credentialsFile()
	if err != nil {
		return nil, err
	}
	creds, err := runnerapi.LoadCredentials(path)
	if err != nil {
		return nil, &exitError{error: err, code: exitUsage}
	}
	keep, err := kept.New(kept.Config{
		Credentials: creds, Note: func(err error) { a.say("%v", err) },
		Save: kept.To(path),
	})
	if err != nil {
		return nil, &exitError{error: err, code: exitUsage}
	}
	return &login{Credentials: creds, keep: keep}, nil
}

// snapshot asks the control plane once, with the few tries of its client.
func (l *login) snapshot(ctx context.Context) ([]announce.Agent, error) {
	defer l.keep.Close()
	client := announce.SnapshotClient{BaseURL: l.ControlPlane, HTTPClient: l.keep.HTTPClient()}
	return client.Agents(ctx)
}

// leastTry is what one question to the control plane gets, however little patience
// there is: connections to what is far away, or busy, take their time.
const leastTry = 2 * time.Second

// agents asks the control plane for all agents, for as long as patience lasts.
func (a *app) agents(ctx context.Context, l *login) ([]announce.Agent, error) {
	end := time.Now().Add(a.patience)
	defer a.tellSlow(ctx, "the control plane", "list-agents")()
	for {
		// One that accepts connections and says nothing is not waited for any longer either.
		asking, cancel := context.WithTimeout(ctx, max(time.Until(end), leastTry))
		agents, err := l.snapshot(asking)
		cancel()
		var refused *problem.Error
		switch {
		case err == nil:
			return agents, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden):
			return nil, &exitError{error: err, code: exitRefused}
		case errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests:
			return nil, err // somebody answers, and will not change his mind
		case isTrust(err):
			return nil, &exitError{
				error: fmt.Errorf("control plane %s: %w", l.ControlPlane, err), code: exitRefused,
				fix: "check this machine's clock; renew the credentials with: pipeops-controlplane runner create NAME -o FILE",
			}
		case time.Now().After(end):
			if errors.Is(err, context.DeadlineExceeded) {
				err = errors.New("it does not answer")
			}
			return nil, &exitError{
				error: fmt.Errorf("the control plane could not be reached for %s: %w", a.patience, err), code: exitUnreachable,
				fix: "check that it runs at " + l.ControlPlane + " and that nothing on the way refuses it",
			}
		}
		if err := sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// isTrust says whether one side did not take the other's certificate.
func isTrust(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification) || strings.Contains(err.Error(), "remote error: tls:")
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// target is an agent and the way to it.
type target struct {
	*runnerapi.Client
	agent announce.Agent
}

func (t *target) String() string { return fmt.Sprintf("agent %s (%s)", t.agent.Name, t.agent.ID) }

// on calls do with a client of the agent that is meant, and says in errors where
// it was.
func (a *app) on(ctx context.Context, nameOrID string, do func(context.Context, *target) error) error {
	t, err := a.target(ctx, nameOrID)
	if err != nil {
		return err
	}
	defer t.Close()
	return do(ctx, t)
}

// find logs in and looks an agent up by its name or ID.
func (a *app) find(ctx context.Context, nameOrID string) (*login, announce.Agent, error) {
	l, err := a.login()
	if err != nil {
		return l, announce.Agent{}, err
	}
	agents, err := a.agents(ctx, l)
	if err != nil {
		return l, announce.Agent{}, err
	}
	agent, err := announce.FindAgent(agents, nameOrID)
	if err != nil {
		err = explainUnknown(err, nameOrID, agents)
	}
	return l, agent, err
}

func (a *app) target(ctx context.Context, nameOrID string) (*target, error) {
	l, agent, err := a.find(ctx, nameOrID)
	if err != nil {
		return nil, err
	}
	return a.reach(l, agent)
}

// reach makes the way to an agent that was found.
func (a *app) reach(l *login, agent announce.Agent) (*target, error) {
	switch agent.State {
	case announce.StateRevoked:
		return nil, &exitError{error: fmt.Errorf("agent %s (%s) is revoked", agent.Name, agent.ID), code: exitRefused,
			fix: "the operator can let its cluster register anew"}
	case announce.StateOffline, announce.StatePending:
		a.say("agent %s is %s (last seen %s); trying for %s", agent.Name, agent.State, cli.Ago(agent.LastSeen), a.patience)
	}
	config := runnerapi.ClientConfig{
		AgentID: agent.ID, ServerName: agent.ID + "." + l.AgentsDomain, EdgeAddresses: []string{l.Edge},
		TrustDomain: l.TrustDomain, Roots: l.keep.Roots(), Certificate: l.keep.Certificate,
		Patience: max(a.patience, 1), UserAgent: "pipeops-runner/" + version,
		Slow: newSlowness(a, "agent "+agent.Name).tell,
	}
	for i, e := range agent.Endpoints {
		if i == 0 {
			config.EdgeAddresses = nil
		}
		config.ServerName = e.ServerName
		config.EdgeAddresses = append(config.EdgeAddresses, e.Address)
	}
	client, err := runnerapi.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &target{Client: client, agent: agent}, nil
}

// explainUnknown adds which agents there are, the likeliest first.
func explainUnknown(err error, asked string, agents []announce.Agent) error {
	if !errors.Is(err, announce.ErrUnknownAgent) {
		return err
	}
	if len(agents) == 0 {
		return &exitError{error: err, code: exitNotFound, fix: "no agent is registered yet, or none that this Runner is granted: install one with a token of `pipeops-controlplane token create`"}
	}
	var names []string
	for _, g := range agents {
		names = append(names, g.Name)
	}
	slices.SortStableFunc(names, func(x, y string) int { return distance(asked, x) - distance(asked, y) })
	fix := "use one of: " + strings.Join(names[:min(len(names), 10)], ", ")
	if d := distance(asked, names[0]); d <= 2 && d < len(asked) {
		fix = fmt.Sprintf("did you mean %q? There are: %s", names[0], strings.Join(names[:min(len(names), 10)], ", "))
	}
	return &exitError{error: err, code: exitNotFound, fix: fix}
}

// distance is how many letters must change to make a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
