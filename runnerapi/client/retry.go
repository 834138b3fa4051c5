package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// maxTries is never reached: timeouts and contexts end the retries.
	maxTries = 1 << 20
	// maxInternal is how often a 500 is retried: it may pass, but is more likely a bug, which does
	// not.
	maxInternal = 2
	// maxRetryAfter bounds the delay that a server may ask for.
	maxRetryAfter = 30 * time.Second
)

// The codes of errors that the client itself returns.
const (
	CodeUnreachable = runnerapi.Code("agent_unreachable") // no reply arrived in time
	CodeUntrusted   = runnerapi.Code("agent_untrusted")   // another peer replied
	CodeRefused     = runnerapi.Code("runner_refused")    // the agent refuses our certificate
)

type tryKey struct{}

// try is what the retry policy knows about one call.
type try struct {
	start    time.Time
	count    int
	internal int

	mu   sync.Mutex
	last error // why the call has not succeeded so far
}

func (t *try) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = err
}

// why returns the reason to other goroutines; only the call's own goroutine changes it.
func (t *try) why() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

func withTry(ctx context.Context) (context.Context, *try) {
	t := &try{start: time.Now()}
	return context.WithValue(ctx, tryKey{}, t), t
}

// checkRetry decides after each try whether to try again, and records the reason.
func (c *core) checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	t, ok := ctx.Value(tryKey{}).(*try)
	if !ok {
		return false, errors.New("runner API client: a call without its try") // unreachable: do always sets it
	}
	t.count++
	switch {
	case err != nil && ctx.Err() != nil:
		return false, err
	case err != nil:
		t.failed(withoutURL(err))
		if final(err) {
			return false, t.last
		}
	case passing(resp.StatusCode):
		e := problem.Read(resp)
		t.failed(e)
		if e.Status == http.StatusInternalServerError {
			t.internal++
		}
	default:
		return false, nil
	}
	if time.Since(t.start) >= c.config.Patience || t.internal > maxInternal {
		return false, t.last
	}
	if c.config.Log != nil {
		c.config.Log.Debug().Err(t.last).Str("agent", c.config.AgentID).Int("tries", t.count).Msg("runner API: retrying")
	}
	return true, nil
}

func passing(status int) bool {
	return (&runnerapi.Error{Status: status}).Passing()
}

// withoutURL removes net/http's "Get https://…:" from an error.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// backoff doubles from shortest to longest, with jitter, unless the agent sent a Retry-After.
func backoff(shortest, longest time.Duration, n int, resp *http.Response) time.Duration {
	if resp != nil {
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
			return min(time.Duration(s)*time.Second, maxRetryAfter)
		}
	}
	return retry.After(shortest, longest, n+1)
}

// failure returns the error of a call that could not be made.
func (c *core) failure(ctx context.Context, t *try, err error) error {
	if t.last == nil {
		t.failed(withoutURL(err))
	}
	known := &runnerapi.Error{}
	agent := c.config.AgentID
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("agent %s: the call was given up: %w", agent, context.Canceled)
	case errors.As(t.last, &known):
		return known
	case c.isExpired(t.last):
		return problem.New(http.StatusServiceUnavailable, CodeUntrusted,
			"check the clocks of this machine and of the agent's; renew the credentials with: pipeops-controlplane runner create NAME",
			"agent %s: a certificate is not valid at this time: %v", agent, t.last)
	case isRefused(t.last):
		return c.refusedBy(t.last)
	case isUntrusted(t.last):
		return problem.New(http.StatusServiceUnavailable, CodeUntrusted,
			"use the credentials of the control plane that the agent belongs to; if they are, the connection is intercepted",
			"what answered is not agent %s: %v", agent, t.last)
	}
	fix := "see whether the agent is online with: pipeops-runner agents"
	if failed, ok := proxy.Explain(t.last); ok {
		fix = failed.Fix
	}
	return problem.New(http.StatusServiceUnavailable, CodeUnreachable, fix,
		"agent %s could not be reached for %s: %v", agent, time.Since(t.start).Round(time.Second), t.last)
}
