package cmdutil

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	kept "github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// Login is the Runner's credentials, ready for use. The certificate, which may be renewed during
// use, comes from keep.
type Login struct {
	credentials.Credentials
	File string // of the credentials; empty if they are nowhere else
	Keep *kept.Login

	streams  Streams
	patience time.Duration
	around   func(http.RoundTripper) http.RoundTripper
	// failed is why the last connection failed, which the client's retries hide behind the end of
	// the time for them.
	failed atomic.Pointer[error]
}

// errorRecorder records why the last connection failed.
type errorRecorder struct {
	http.RoundTripper
	failed *atomic.Pointer[error]
}

// RoundTrip implements http.RoundTripper.
func (n errorRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err != nil && r.Context().Err() == nil {
		n.failed.Store(&err)
	}
	return resp, err
}

// Login reads the credentials, or gets some for the job's ID token.
func (a *CLI) Login(ctx context.Context) (*Login, error) {
	if a.exchanges() {
		return a.loginByToken(ctx)
	}
	path, err := a.CredentialsFile()
	if err != nil {
		return nil, err
	}
	creds, err := credentials.Load(path)
	if err != nil {
		return nil, &ExitError{Err: err, Code: ExitUsage}
	}
	return a.loginWith(creds, path, kept.To(path))
}

func (a *CLI) loginWith(creds credentials.Credentials, path string, save func(credentials.Credentials) error) (*Login, error) {
	from := kept.EnvironmentExchange()
	keep, err := kept.New(kept.Config{
		Credentials: creds, Note: func(err error) { a.Say("%v", err) },
		Save: save, Token: from.Token, Audience: from.Audience,
	})
	if err != nil {
		return nil, &ExitError{Err: err, Code: ExitUsage}
	}
	return &Login{Credentials: creds, File: path, Keep: keep, streams: a.Streams, patience: a.Patience, around: a.inspected}, nil
}

// Snapshot sends one request to the control plane, with the few retries of its client.
func (l *Login) Snapshot(ctx context.Context) ([]announce.Agent, error) {
	defer l.Keep.Close()
	return l.Snapshots().Agents(ctx)
}

// Timeline sends one request to the control plane, as Snapshot does.
func (l *Login) Timeline(ctx context.Context, agentID string, q announce.TimelineQuery) (announce.TimelinePage, error) {
	defer l.Keep.Close()
	return l.Snapshots().Timeline(ctx, agentID, q)
}

// Snapshots returns a client of the control plane.
func (l *Login) Snapshots() *announce.SnapshotClient {
	caller := l.Keep.HTTPClient()
	caller.Transport = errorRecorder{l.around(caller.Transport), &l.failed}
	return &announce.SnapshotClient{BaseURL: l.ControlPlane, HTTPClient: caller}
}

// leastTry is the minimum time for one request to the control plane, regardless of patience:
// connections to a distant or busy server take time.
const leastTry = 2 * time.Second

// Agents asks the control plane for all agents, and retries for as long as patience lasts.
func (l *Login) Agents(ctx context.Context) (agents []announce.Agent, err error) {
	defer l.streams.reportSlow(ctx, "list-agents")()
	err = l.patiently(ctx, func(ctx context.Context) (err error) {
		agents, err = l.Snapshot(ctx)
		return err
	})
	return agents, err
}

// Find asks the control plane for an agent by its name or ID, and retries for as long as patience
// lasts.
func (l *Login) Find(ctx context.Context, nameOrID string) (agent announce.Agent, err error) {
	defer l.streams.reportSlow(ctx, "get-agent")()
	err = l.patiently(ctx, func(ctx context.Context) (err error) {
		defer l.Keep.Close()
		agent, err = l.Snapshots().Agent(ctx, nameOrID)
		return err
	})
	return agent, err
}

// ServerVersion asks the control plane for its version, and retries for as long as patience lasts.
func (l *Login) ServerVersion(ctx context.Context) (version string, err error) {
	defer l.streams.reportSlow(ctx, "get-version")()
	err = l.patiently(ctx, func(ctx context.Context) (err error) {
		defer l.Keep.Close()
		version, err = l.Snapshots().Version(ctx)
		return err
	})
	return version, err
}

// patiently repeats a request to the control plane until it is answered, for as long as patience
// lasts.
func (l *Login) patiently(ctx context.Context, ask func(context.Context) error) error {
	end := time.Now().Add(l.patience)
	for {
		l.failed.Store(nil)
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
				Fix: fixTrust(err),
			}
		case lacksProxy(err):
			return l.unreachable("", err)
		case time.Now().After(end):
			return l.unreachable(tried(l.patience), err)
		}
		if !retry.Wait(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// lacksProxy reports whether a proxy's failure lasts until its variables change.
func lacksProxy(err error) bool {
	failed, ok := proxy.Explain(err)
	return ok && failed.Final
}

func (l *Login) unreachable(tried string, err error) error {
	err = l.cause(err)
	fix := "check that it runs at " + l.ControlPlane + " and that nothing on the way refuses it"
	if failed, ok := proxy.Explain(err); ok {
		fix = failed.Fix
	}
	return &ExitError{Err: fmt.Errorf("the control plane could not be reached%s: %w", tried, err), Code: ExitUnreachable, Fix: fix}
}

// cause returns why the last try failed.
func (l *Login) cause(err error) error {
	if _, answered := errors.AsType[*problem.Error](err); answered {
		return err
	}
	if failed := l.failed.Load(); failed != nil {
		return *failed
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("it does not answer")
	}
	return err
}

// tried says for how long the command retried. It is empty for a single try.
func tried(patience time.Duration) string {
	if patience == 0 {
		return ""
	}
	return " for " + patience.String()
}

// fixTrust returns the fix for an error of isTrust.
func fixTrust(err error) string {
	if _, ok := errors.AsType[*trustanchor.FingerprintError](err); ok {
		return "set " + kept.EnvFingerprint + " as `pipeops-controlplane runner create` printed it, and check that nothing answers in the control plane's place"
	}
	return "check this machine's clock; renew the credentials with: pipeops-controlplane runner create NAME -o FILE"
}

// isTrust reports whether one side refused the other's certificate.
func isTrust(err error) bool {
	var verification *tls.CertificateVerificationError
	var pin *trustanchor.FingerprintError
	return errors.As(err, &verification) || errors.As(err, &pin) || strings.Contains(err.Error(), "remote error: tls:")
}
