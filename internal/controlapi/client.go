package controlapi

import (
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
)

const (
	maxAnswer     = 1 << 20
	attemptTime   = 40 * time.Second
	handshakeTime = 30 * time.Second // a control plane that thousands come back to takes them in turn
	maxRetryAfter = time.Minute
)

// ClientConfig configures a Client. URL and TLS are required.
type ClientConfig struct {
	// URL is the control plane's, https://HOST[:PORT].
	URL string
	// TLS is called before each request and must return the same pointer for as long as nothing
	// changed. If it returns another one, new connections use that, so that a renewed certificate
	// or CA is used.
	TLS func() *tls.Config
	// Streams are preferred for calls with the agent's certificate; nil for connections alone.
	Streams Streams
	// Proxy chooses a proxy; nil means the environment (HTTPS_PROXY, NO_PROXY).
	Proxy proxy.Func
	// Log gets a line per retry and a warning when the clocks drift apart.
	Log zerolog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Origin returns, at each call, where the call comes from; it may be nil.
	Origin func() Origin

	// Retries is how often a call is tried again before it fails (default 3,
	// negative: never). WaitMin and WaitMax bound the jittered, growing waits
	// (default 500 ms and 10 s). The agent's own loop is the driver above.
	Retries          int
	WaitMin, WaitMax time.Duration
}

// Client makes the agent's calls. Every error of its methods is an *Error, unless the context was
// cancelled.
type Client struct {
	base    *url.URL
	explain explainer
	log     zerolog.Logger
	now     func() time.Time
	named   *streamTransport   // with the agent's certificate
	unnamed *rotatingTransport // without
	retry   ClientConfig
}

// NewClient checks the configuration. Nothing is sent before the first call.
func NewClient(cfg ClientConfig) (*Client, error) {
	base, err := ParseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.TLS == nil {
		return nil, errors.New("control plane client: no TLS source")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Proxy == nil {
		cfg.Proxy = proxy.FromEnvironment()
	}
	cfg.Retries = cmp.Or(cfg.Retries, 3)
	if cfg.WaitMin <= 0 {
		cfg.WaitMin = 500 * time.Millisecond
	}
	if cfg.WaitMax < cfg.WaitMin {
		cfg.WaitMax = max(10*time.Second, cfg.WaitMin)
	}
	return &Client{
		base: base, explain: explainer{base: base, now: cfg.Now}, log: cfg.Log, now: cfg.Now, retry: cfg,
		named:   newStreamTransport(&rotatingTransport{source: cfg.TLS, proxy: cfg.Proxy}, cfg.Streams),
		unnamed: &rotatingTransport{source: cfg.TLS, proxy: cfg.Proxy, anonymous: true},
	}, nil
}

// Close drops the connections that are kept alive.
func (c *Client) Close() {
	c.named.CloseIdleConnections()
	c.unnamed.CloseIdleConnections()
}

// Register requests an identity with an enrolment token.
func (c *Client) Register(ctx context.Context, token Token, req RegisterRequest) (Identity, error) {
	return answered[Identity](func(id any) error { return c.post(ctx, c.unnamed, pathRegister, bearing(token), req, id) })
}

// CheckToken returns what an enrolment token allows, without using it. With the fingerprint of a
// key, it also returns the state of the registration with both.
func (c *Client) CheckToken(ctx context.Context, token Token, check TokenCheck) (TokenState, error) {
	return answered[TokenState](func(state any) error { return c.post(ctx, c.unnamed, pathToken, bearing(token), check, state) })
}

// CheckIdentity checks whether the agent's certificate is accepted.
func (c *Client) CheckIdentity(ctx context.Context) error {
	return c.post(ctx, c.named, pathIdentity, nil, struct{}{}, nil)
}

func bearing(token Token) http.Header {
	return http.Header{"Authorization": {"Bearer " + token.Credential()}}
}

// Renew requests a new certificate with the current one.
func (c *Client) Renew(ctx context.Context, csr string) (Identity, error) {
	return answered[Identity](func(id any) error {
		return c.post(ctx, c.named, pathRenew, nil, RenewRequest{CSR: csr, Clock: c.now()}, id)
	})
}

// Recover requests a new certificate with an expired one and a proof of its key.
func (c *Client) Recover(ctx context.Context, oldCertificate string, oldKey crypto.Signer, csr string) (Identity, error) {
	req := RenewRequest{CSR: csr, Clock: c.now(), OldCertificate: oldCertificate}
	var err error
	if req.Proof, err = SignRecovery(oldKey, csr, req.Clock); err != nil {
		return Identity{}, err
	}
	return answered[Identity](func(id any) error { return c.post(ctx, c.unnamed, pathRenew, nil, req, id) })
}

// Heartbeat reports that the agent is alive.
func (c *Client) Heartbeat(ctx context.Context, beat Heartbeat) (HeartbeatAnswer, error) {
	return answered[HeartbeatAnswer](func(answer any) error { return c.post(ctx, c.named, pathHeartbeat, nil, beat, answer) })
}

// Audit sends records of the audit log and returns the last one that the control plane then has.
func (c *Client) Audit(ctx context.Context, req AuditRequest) (AuditAnswer, error) {
	return answered[AuditAnswer](func(answer any) error { return c.post(ctx, c.named, pathAudit, nil, req, answer) })
}

// Events sends events, cut where they would be refused. Once it has returned nil they cannot be
// lost, except those that the control plane takes in no form.
func (c *Client) Events(ctx context.Context, r EventsRequest) error {
	r.Events = fitting(r.Events)
	return c.post(ctx, c.named, pathEvents, nil, r, nil)
}

// answered returns the answer of a call, or an error and no part of an answer.
func answered[T any](call func(into any) error) (T, error) {
	var answer, none T
	if err := call(&answer); err != nil {
		return none, err
	}
	return answer, nil
}

func (c *Client) post(ctx context.Context, via http.RoundTripper, path string, header http.Header, in, out any) error {
	return c.send(ctx, http.MethodPost, via, path, header, in, out)
}

// send makes a call; a nil in is one without a body.
func (c *Client) send(ctx context.Context, method string, via http.RoundTripper, path string, header http.Header, in, out any) error {
	if via == c.named && c.retry.Streams != nil {
		c.retry.Streams.Settle(ctx) // before the first attempt, whose time it is not to take
		ctx = context.WithValue(ctx, callRouteKey{}, &callRoute{})
	}
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	maps.Copy(req.Header, header)
	if c.retry.Origin != nil {
		c.retry.Origin().header(req.Header)
	}
	req.Header.Set("Accept", "application/json, "+problem.ContentType)
	span.Inject(ctx, req.Header)
	var last error
	resp, err := c.caller(via, &last).Do(req)
	if err != nil {
		if last != nil && errors.Is(err, context.DeadlineExceeded) {
			err = last
		}
		return c.explain.explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	c.noteClock(resp)
	if resp.StatusCode/100 != 2 {
		return problem.Read(resp)
	}
	return c.decode(resp, out)
}

func (c *Client) request(ctx context.Context, method, path string, in any) (*retryablehttp.Request, error) {
	url := c.base.JoinPath(path).String()
	if in == nil {
		return retryablehttp.NewRequestWithContext(ctx, method, url, nil)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, method, url, body)
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

// decode takes fields that it does not know: a newer control plane may send more.
func (c *Client) decode(resp *http.Response, out any) error {
	if out == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return c.explain.explain(err)
	}
	if len(body) > maxAnswer {
		return c.explain.unreachableText("its answer is too long", "make sure that PIPEOPS_CONTROL_PLANE_URL is a control plane")
	}
	if err := decode.LimitsFor(maxAnswer).JSON(body, out); err != nil {
		return c.explain.unreachableText("its answer is not JSON", "make sure that PIPEOPS_CONTROL_PLANE_URL is a control plane")
	}
	return nil
}

// noteClock warns of a drift while it is small enough for things to work still.
func (c *Client) noteClock(resp *http.Response) {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	if e := ClockSkew(c.now(), date); e != nil {
		c.log.Warn().Str("fix", e.Fix).Msg(e.Detail)
	}
}
