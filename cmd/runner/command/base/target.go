package base

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
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	kept "github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// Login is the Runner's credentials, ready for use. The certificate, which may be renewed during
// use, comes from keep.
type Login struct {
	credentials.Credentials
	Keep *kept.Login

	around func(http.RoundTripper) http.RoundTripper
}

// Login reads the credentials.
func (a *CLI) Login() (*Login, error) {
	path, err := a.CredentialsFile()
	if err != nil {
		return nil, err
	}
	creds, err := credentials.Load(path)
	if err != nil {
		return nil, &ExitError{Err: err, Code: ExitUsage}
	}
	keep, err := kept.New(kept.Config{
		Credentials: creds, Note: func(err error) { a.Say("%v", err) },
		Save: kept.To(path),
	})
	if err != nil {
		return nil, &ExitError{Err: err, Code: ExitUsage}
	}
	return &Login{Credentials: creds, Keep: keep, around: a.inspected}, nil
}

// Snapshot sends one request to the control plane, with the few retries of its client.
func (l *Login) Snapshot(ctx context.Context) ([]announce.Agent, error) {
	defer l.Keep.Close()
	return l.Snapshots().Agents(ctx)
}

// lookUp asks the control plane for one agent, as snapshot does.
func (l *Login) lookUp(ctx context.Context, nameOrID string) (announce.Agent, error) {
	defer l.Keep.Close()
	return l.Snapshots().Agent(ctx, nameOrID)
}

// Snapshots returns a client of the control plane.
func (l *Login) Snapshots() *announce.SnapshotClient {
	caller := l.Keep.HTTPClient()
	caller.Transport = l.around(caller.Transport)
	return &announce.SnapshotClient{BaseURL: l.ControlPlane, HTTPClient: caller}
}

// leastTry is the minimum time for one request to the control plane, regardless of patience:
// connections to a distant or busy server take time.
const leastTry = 2 * time.Second

// Agents asks the control plane for all agents, and retries for as long as patience lasts.
func (a *CLI) Agents(ctx context.Context, l *Login) (agents []announce.Agent, err error) {
	defer a.tellSlow(ctx, "the control plane", "list-agents")()
	err = a.patiently(ctx, l, func(ctx context.Context) (err error) {
		agents, err = l.Snapshot(ctx)
		return err
	})
	return agents, err
}

// ServerVersion asks the control plane for its version, and retries for as long as patience lasts.
func (a *CLI) ServerVersion(ctx context.Context, l *Login) (version string, err error) {
	defer a.tellSlow(ctx, "the control plane", "get-version")()
	err = a.patiently(ctx, l, func(ctx context.Context) (err error) {
		defer l.Keep.Close()
		version, err = l.Snapshots().Version(ctx)
		return err
	})
	return version, err
}

// patiently repeats a request to the control plane until it is answered, for as long as patience
// lasts.
func (a *CLI) patiently(ctx context.Context, l *Login, ask func(context.Context) error) error {
	end := time.Now().Add(a.Patience)
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
			return &ExitError{Err: err, Code: ExitRefused}
		case errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests:
			return err // a server answers, and a retry will not change that
		case isTrust(err):
			return &ExitError{
				Err: fmt.Errorf("control plane %s: %w", l.ControlPlane, err), Code: ExitRefused,
				Fix: "check this machine's clock; renew the credentials with: pipeops-controlplane runner create NAME -o FILE",
			}
		case time.Now().After(end):
			if errors.Is(err, context.DeadlineExceeded) {
				err = errors.New("it does not answer")
			}
			return &ExitError{
				Err: fmt.Errorf("the control plane could not be reached for %s: %w", a.Patience, err), Code: ExitUnreachable,
				Fix: "check that it runs at " + l.ControlPlane + " and that nothing on the way refuses it",
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

// Target is an agent and the connection to it.
type Target struct {
	*client.Client
	Agent announce.Agent
}

func (t *Target) String() string { return fmt.Sprintf("agent %s (%s)", t.Agent.Name, t.Agent.ID) }

// On calls do with a client of the named agent, and adds the agent to errors.
func (a *CLI) On(ctx context.Context, nameOrID string, do func(context.Context, *Target) error) error {
	t, err := a.target(ctx, nameOrID)
	if err != nil {
		return err
	}
	defer t.Close()
	return do(ctx, t)
}

// Find logs in and looks an agent up by its name or ID.
func (a *CLI) Find(ctx context.Context, nameOrID string) (l *Login, agent announce.Agent, err error) {
	if l, err = a.Login(); err != nil {
		return l, agent, err
	}
	defer a.tellSlow(ctx, "the control plane", "get-agent")()
	err = a.patiently(ctx, l, func(ctx context.Context) (err error) {
		agent, err = l.lookUp(ctx, nameOrID)
		return err
	})
	return l, agent, err
}

func (a *CLI) target(ctx context.Context, nameOrID string) (*Target, error) {
	l, agent, err := a.Find(ctx, nameOrID)
	if err != nil {
		return nil, err
	}
	return a.Reach(l, agent)
}

// around inspects the agents' answers in the program that end-to-end tests build; nil otherwise.
var around func(http.RoundTripper) http.RoundTripper

// around returns what inspects the agents' answers; nil for nothing.
func (a *CLI) around() func(http.RoundTripper) http.RoundTripper {
	switch {
	case a.Verbose == 0:
		return around
	case around == nil:
		return a.inspected
	}
	return func(next http.RoundTripper) http.RoundTripper { return a.inspected(around(next)) }
}

// Reach returns the connection to an agent that was found.
func (a *CLI) Reach(l *Login, agent announce.Agent) (*Target, error) {
	switch agent.State {
	case announce.StateOffline, announce.StatePending:
		a.Say("agent %s is %s (last seen %s); trying for %s", agent.Name, agent.State, cli.Ago(agent.LastSeen), a.Patience)
	}
	config := client.Config{
		AgentID: agent.ID, ServerName: agent.ID + "." + l.AgentsDomain, EdgeAddresses: []string{l.Edge},
		TrustDomain: l.TrustDomain, Roots: l.Keep.Roots(), Certificate: l.Keep.Certificate,
		Patience: max(a.Patience, 1), UserAgent: "pipeops-runner/" + a.Version,
		Slow:   newSlowness(a, "agent "+agent.Name).tell,
		Around: a.around(),
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
	return &Target{Client: client, Agent: agent}, nil
}
