package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	kept "github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// login is the Runner's credentials, ready for use. The certificate, which may be renewed during
// use, comes from keep.
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

// snapshot sends one request to the control plane, with the few retries of its client.
func (l *login) snapshot(ctx context.Context) ([]announce.Agent, error) {
	defer l.keep.Close()
	return l.controlPlane().Agents(ctx)
}

// lookUp asks the control plane for one agent, as snapshot does.
func (l *login) lookUp(ctx context.Context, nameOrID string) (announce.Agent, error) {
	defer l.keep.Close()
	return l.controlPlane().Agent(ctx, nameOrID)
}

func (l *login) controlPlane() *announce.SnapshotClient {
	return &announce.SnapshotClient{BaseURL: l.ControlPlane, HTTPClient: l.keep.HTTPClient()}
}

// leastTry is the minimum time for one request to the control plane, regardless of patience:
// connections to a distant or busy server take time.
const leastTry = 2 * time.Second

// agents asks the control plane for all agents, and retries for as long as patience lasts.
func (a *app) agents(ctx context.Context, l *login) (agents []announce.Agent, err error) {
	defer a.tellSlow(ctx, "the control plane", "list-agents")()
	err = a.patiently(ctx, l, func(ctx context.Context) (err error) {
		agents, err = l.snapshot(ctx)
		return err
	})
	return agents, err
}

// patiently repeats a request to the control plane until it is answered, for as long as patience
// lasts.
func (a *app) patiently(ctx context.Context, l *login, ask func(context.Context) error) error {
	end := time.Now().Add(a.patience)
	for {
		// A server that accepts connections and sends nothing is not waited for any longer either.
		asking, cancel := context.WithTimeout(ctx, max(time.Until(end), leastTry))
		err := ask(asking)
		cancel()
		var refused *problem.Error
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden):
			return &exitError{error: err, code: exitRefused}
		case errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests:
			return err // a server answers, and a retry will not change that
		case isTrust(err):
			return &exitError{
				error: fmt.Errorf("control plane %s: %w", l.ControlPlane, err), code: exitRefused,
				fix: "check this machine's clock; renew the credentials with: pipeops-controlplane runner create NAME -o FILE",
			}
		case time.Now().After(end):
			if errors.Is(err, context.DeadlineExceeded) {
				err = errors.New("it does not answer")
			}
			return &exitError{
				error: fmt.Errorf("the control plane could not be reached for %s: %w", a.patience, err), code: exitUnreachable,
				fix: "check that it runs at " + l.ControlPlane + " and that nothing on the way refuses it",
			}
		}
		if !retry.Wait(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// isTrust reports whether one side refused the other's certificate.
func isTrust(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification) || strings.Contains(err.Error(), "remote error: tls:")
}

// target is an agent and the connection to it.
type target struct {
	*client.Client
	agent announce.Agent
}

func (t *target) String() string { return fmt.Sprintf("agent %s (%s)", t.agent.Name, t.agent.ID) }

// on calls do with a client of the named agent, and adds the agent to errors.
func (a *app) on(ctx context.Context, nameOrID string, do func(context.Context, *target) error) error {
	t, err := a.target(ctx, nameOrID)
	if err != nil {
		return err
	}
	defer t.Close()
	return do(ctx, t)
}

// find logs in and looks an agent up by its name or ID.
func (a *app) find(ctx context.Context, nameOrID string) (l *login, agent announce.Agent, err error) {
	if l, err = a.login(); err != nil {
		return l, agent, err
	}
	defer a.tellSlow(ctx, "the control plane", "get-agent")()
	err = a.patiently(ctx, l, func(ctx context.Context) (err error) {
		agent, err = l.lookUp(ctx, nameOrID)
		return err
	})
	return l, agent, err
}

func (a *app) target(ctx context.Context, nameOrID string) (*target, error) {
	l, agent, err := a.find(ctx, nameOrID)
	if err != nil {
		return nil, err
	}
	return a.reach(l, agent)
}

// around inspects the agents' answers in the program that end-to-end tests build; nil otherwise.
var around func(http.RoundTripper) http.RoundTripper

// reach returns the connection to an agent that was found.
func (a *app) reach(l *login, agent announce.Agent) (*target, error) {
	switch agent.State {
	case announce.StateOffline, announce.StatePending:
		a.say("agent %s is %s (last seen %s); trying for %s", agent.Name, agent.State, cli.Ago(agent.LastSeen), a.patience)
	}
	config := client.Config{
		AgentID: agent.ID, ServerName: agent.ID + "." + l.AgentsDomain, EdgeAddresses: []string{l.Edge},
		TrustDomain: l.TrustDomain, Roots: l.keep.Roots(), Certificate: l.keep.Certificate,
		Patience: max(a.patience, 1), UserAgent: "pipeops-runner/" + version,
		Slow:   newSlowness(a, "agent "+agent.Name).tell,
		Around: around,
	}
	for i, e := range agent.Endpoints {
		if i == 0 {
			config.EdgeAddresses = nil
		}
		config.ServerName = e.ServerName
		config.EdgeAddresses = append(config.EdgeAddresses, e.Address)
	}
	client, err := client.New(config)
	if err != nil {
		return nil, err
	}
	return &target{Client: client, agent: agent}, nil
}
