package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
)

const (
	// callTimeout is how long a receiver may take for one event, connecting included.
	callTimeout = 10 * time.Second
	// maxAnswer is how much of an answer is read, so that the connection can be used
	// again. It is kept nowhere.
	maxAnswer       = 64 << 10
	maxAnswerHeader = 32 << 10
	idleFor         = time.Minute
)

// Sender calls one webhook's receiver. Close it in the end.
type Sender struct {
	hook    store.Webhook
	client  *http.Client
	options Options
}

// Options configure all senders.
type Options struct {
	// TLS has the CAs that receivers' certificates may be of; nil means the machine's.
	TLS       tlsfiles.Source
	UserAgent string
	// Console returns the console's URL, for links in notices; nil for no links. It is called when
	// a notice is sent: the URL may have a port that is known only once it is open.
	Console func() string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Tried, if set, is called with each delivery's state after an attempt of a Dispatcher; a
	// pending one is retried. It may be called concurrently.
	Tried func(store.DeliveryState)

	callTimeout time.Duration // 0 is the usual one
	// agentName returns what an agent is called; empty if that is unknown. It may be nil.
	agentName func(ctx context.Context, id string) string
}

// NewSender returns a sender. Nothing that it does goes through a proxy: the check of the
// receiver's address would be worth nothing.
func NewSender(hook store.Webhook, o Options) *Sender {
	if o.Now == nil {
		o.Now = time.Now
	}
	g := guardOf(hook.URL, hook.AllowPrivate)
	timeout := cmp.Or(o.callTimeout, callTimeout)
	transport := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: timeout / 2, Control: g.control}).DialContext,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		MaxConnsPerHost:        lanesAtATime,
		IdleConnTimeout:        idleFor,
	}
	return &Sender{hook: hook, options: o, client: &http.Client{
		Transport: tlsfiles.NewTransport(transport, o.TLS), Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Result is the result of one call.
type Result struct {
	// Status is HTTP's, 0 when there was no answer.
	Status int
	// Err is why it counts for nothing; nil when the receiver has taken it.
	Err error
	// RetryAfter is the pause that the receiver requests; 0 if it requests none.
	RetryAfter time.Duration
}

// Gone reports whether the receiver wants nothing more, ever.
func (r Result) Gone() bool { return r.Status == http.StatusGone }

// Send sends one event. Its errors contain neither the URL, which may be secret, nor anything of
// the receiver's answer.
func (s *Sender) Send(ctx context.Context, id string, event []byte) Result {
	body, kind, err := s.formatted(ctx, event)
	if err != nil {
		return Result{Err: err}
	}
	req, err := s.request(ctx, id, body, kind)
	if err != nil {
		return Result{Err: err}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return Result{Err: explain(err)}
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // the content does not matter
	r := Result{Status: resp.StatusCode}
	switch {
	case r.Status >= 200 && r.Status < 300:
		return r
	case r.Status >= 300 && r.Status < 400:
		r.Err = fmt.Errorf("it answered %d: redirects are not followed; make a webhook with the address that it leads to", r.Status)
	default:
		r.Err = fmt.Errorf("it answered %d %s", r.Status, http.StatusText(r.Status))
		r.RetryAfter = retry.Header(resp.Header.Get("Retry-After"), s.options.Now(), maxRetryAfter)
	}
	return r
}

func (s *Sender) request(ctx context.Context, id string, body []byte, kind string) (*http.Request, error) {
	at, secrets := s.options.Now(), []string{s.hook.Secret}
	if s.hook.Previous != "" && at.Before(s.hook.PreviousUntil) {
		secrets = append(secrets, s.hook.Previous)
	}
	signature, err := sign(secrets, id, at, body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.hook.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the webhook's URL cannot be read; delete it and recreate it")
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("User-Agent", s.options.UserAgent)
	req.Header.Set(headerID, id)
	req.Header.Set(headerTimestamp, strconv.FormatInt(at.Unix(), 10))
	req.Header.Set(headerSignature, signature)
	return req, nil
}

// explain removes the URL from an error, and describes a timeout.
func explain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Timeout() {
			return fmt.Errorf("it did not answer within %s", callTimeout)
		}
		err = u.Err
	}
	return err
}

// maxRetryAfter is the longest for which a receiver is left alone on its own word.
const maxRetryAfter = 24 * time.Hour
