package controlapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// idleTimeout is how long a connection is kept that is not in use: over heartbeats in a
// hurry, and not over those of an agent at rest, of which a control plane has thousands. It
// is shorter than the control plane's own, and little longer than the time between heartbeats in a
// hurry.
const idleTimeout = 6 * time.Second

// rotatingTransport is an http.Transport that follows a TLS configuration: when
// that changes, new requests go over new connections.
type rotatingTransport struct {
	source    func() *tls.Config
	proxy     proxy.Func
	anonymous bool // show no client certificate

	mu      sync.Mutex
	last    *tls.Config
	current *http.Transport
}

func (t *rotatingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.transport().RoundTrip(r)
}

func (t *rotatingTransport) transport() *http.Transport {
	cfg := t.source()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil && t.last == cfg {
		return t.current
	}
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
	t.last, t.current = cfg, t.newTransport(cfg)
	return t.current
}

func (t *rotatingTransport) newTransport(cfg *tls.Config) *http.Transport {
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	cfg = cfg.Clone()
	// Only for what the current certificate has proven: another one gets another transport.
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	if t.anonymous {
		cfg.Certificates, cfg.GetClientCertificate = nil, nil
	}
	return t.proxy.Use(&http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       cfg,
		TLSHandshakeTimeout:   handshakeTime,
		ResponseHeaderTimeout: attemptTime,
		IdleConnTimeout:       idleTimeout,
		MaxIdleConnsPerHost:   1,
	})
}

// CloseIdleConnections is called by http.Client.
func (t *rotatingTransport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
}

// caller returns the retrying client of one call. It stores the last failure in last: a deadline
// that passes while it waits for a retry is less specific.
func (c *Client) caller(via http.RoundTripper, last *error) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: via, Timeout: attemptTime,
			// A redirect would take the token or the certificate elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		RetryMax: max(c.retry.Retries, 0), RetryWaitMin: c.retry.WaitMin, RetryWaitMax: c.retry.WaitMax,
		CheckRetry: func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			if err != nil && ctx.Err() == nil {
				*last = err
			}
			return c.checkRetry(ctx, resp, err)
		},
		Backoff: backoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
		RequestLogHook: func(_ retryablehttp.Logger, r *http.Request, attempt int) {
			if attempt > 0 {
				c.log.Info().Str("path", r.URL.Path).Int("attempt", attempt).Msg("retrying the control plane")
			}
		},
	}
}

// checkRetry tries again what may pass by itself. All calls of this wire may be
// sent twice.
func (c *Client) checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		return !c.explain.final(err), nil
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		http.StatusInternalServerError:
		return true, nil
	}
	return false, nil
}

// backoff waits as long as the server asks for, within reason, or a random part
// of an exponentially growing time, so that many agents do not return in step.
func backoff(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
			return min(time.Duration(s)*time.Second, maxRetryAfter)
		}
	}
	return retry.After(shortest, longest, attempt+1)
}
