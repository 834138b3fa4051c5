package operatorapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
)

const (
	// maxAnswer bounds an answer: some ten thousand agents fit.
	maxAnswer  = 64 << 20
	retries    = 3
	retryMin   = 200 * time.Millisecond
	retryMax   = 2 * time.Second
	tryTimeout = callTimeout + 10*time.Second
)

// Client sends calls to a control plane. Every change has an Idempotency-Key, so that it is sent
// again when its answer was lost, and carried out once. It is safe for concurrent use.
type Client struct {
	url  string
	http *retryablehttp.Client

	credentials administration.Credentials
	renewal     *Renewal // nil for none
	renewing    atomic.Bool
}

// NewClient returns a client with an operator's credentials.
func NewClient(c administration.Credentials, version string) (*Client, error) {
	config, err := c.TLSConfig()
	if err != nil {
		return nil, err
	}
	client := newClient(proxy.FromEnvironment().Use(&http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}), version)
	return &Client{url: strings.TrimSuffix(c.ControlPlane, "/"), http: client, credentials: c}, nil
}

// NewSocketClient returns a client for the socket of a control plane on this machine.
func NewSocketClient(dial func(context.Context) (net.Conn, error), version string) *Client {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	return &Client{url: "http://localhost", http: newClient(&http.Transport{DialContext: connect}, version)}
}

func newClient(transport http.RoundTripper, version string) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.Logger = nil
	client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = retries, retryMin, retryMax
	client.Backoff = retryablehttp.RateLimitLinearJitterBackoff
	client.CheckRetry = worthRetrying
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler // keep the last answer's problem
	client.HTTPClient = &http.Client{
		Timeout:       tryTimeout,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	client.RequestLogHook = func(_ retryablehttp.Logger, r *http.Request, _ int) {
		r.Header.Set("User-Agent", "pipeops-controlplane/"+version)
	}
	return client
}

// worthRetrying leaves out answers that would be the same again.
func worthRetrying(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if resp != nil && resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusBadGateway {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// Close implements Target.
func (c *Client) Close() error {
	c.http.HTTPClient.CloseIdleConnections()
	return nil
}

func (c *Client) do(ctx context.Context, d *Description, in, out any, _ func(context.Context, *administration.Admin) error) error {
	if w := writeOf(in); w != nil && w.IdempotencyKey == "" {
		w.IdempotencyKey = uuid.NewString()
	}
	sent := inputOf(in)
	var body io.Reader
	if sent.body != nil {
		text, err := json.Marshal(sent.body)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, d.Method, c.url+sent.url(d), body)
	if err != nil {
		return fmt.Errorf("operator API: %w (fix: correct controlPlane in the credentials)", err)
	}
	for name := range sent.header {
		req.Header.Set(name, sent.header.Get(name))
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if err := c.send(req, out); err != nil {
		return err
	}
	c.renew(ctx)
	return nil
}

// unreachable returns the error of a call that got no answer.
func (c *Client) unreachable(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the rest of it is the call's own URL
	}
	fix := "check that it runs there, and that nothing on the way refuses it"
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		fix = "use the credentials of the control plane that answers there, and check this machine's clock"
	}
	if failed, ok := proxy.Explain(err); ok {
		err, fix = failed, failed.Fix
	}
	return fmt.Errorf("the control plane at %s could not be reached: %w (fix: %s)", c.url, err, fix)
}

func (c *Client) send(req *retryablehttp.Request, out any) error {
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return problem.Read(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("operator API at %s: %w", c.url, err)
	case len(text) > maxAnswer:
		return errors.New("operator API: the answer is too large")
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("operator API at %s: the answer makes no sense: %w", c.url, err)
	}
	return nil
}
