package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// maxAnswer bounds an answer that is not a stream: thousands of Apps.
const maxAnswer = 64 << 20

// request is one call.
type request struct {
	call   string // its ID in the table of calls
	method string
	path   string // escaped
	query  map[string]string
	body   any
	raw    []byte // the body as it is, instead
	media  string // of raw
	key    string // Idempotency-Key
	match  string // If-Match
	accept string

	lastEvent string // Last-Event-ID
}

// newRequest returns a request of the call with that ID. The names are those in its path, in order.
func newRequest(id string, names ...string) *request {
	call := runnerapi.CallOf(id)
	return &request{call: id, method: call.Method, path: call.PathTo(names...)}
}

// objectRequest is newRequest for a namespaced object.
func objectRequest(id string, key runnerapi.Key) *request {
	return newRequest(id, key.Namespace, key.Name)
}

// send sets the body.
func (r *request) send(body any) *request {
	r.body = body
	return r
}

// url returns a URL with the scheme of a connection whose TLS the dialer handles.
func (r *request) url(host string) string {
	q := url.Values{}
	for k, v := range r.query {
		q.Set(k, v)
	}
	u := "http://" + host + r.path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	return u
}

// write adds the options of a write.
func (r *request) write(opts runnerapi.WriteOptions) *request {
	switch { // the state from which the write was made
	case opts.Generation > 0:
		r.match = strconv.Quote(strconv.FormatInt(opts.Generation, 10))
	case opts.Revision > 0:
		r.match = strconv.Quote(strconv.Itoa(opts.Revision))
	case opts.Digest != "":
		r.match = strconv.Quote(opts.Digest)
	}
	r.key = opts.IdempotencyKey
	if r.key == "" {
		r.key = uuid.NewString()
	}
	if opts.DryRun {
		r.ask("dryRun")
	}
	return r
}

// ask sets a query parameter to true.
func (r *request) ask(name string) {
	if r.query == nil {
		r.query = map[string]string{}
	}
	r.query[name] = "true"
}

// call makes a call and decodes its answer into out, which may be nil. It returns the number of
// tries. A truncated answer is requested again, like a missing one: reads are safe, and writes have
// their key.
func (c *core) call(ctx context.Context, r *request, out any) (int, error) {
	// An agent that accepts connections and never answers is unreachable too.
	ctx, cancel := context.WithTimeout(ctx, c.config.Patience+headerTimeout)
	defer cancel()
	ctx, t := withTry(ctx)
	for n := 0; ; n++ {
		body, err := c.exchange(ctx, t, r)
		if _, ok := errors.AsType[*brokenOffError](err); ok {
			t.failed(err)
			if time.Since(t.start) < c.config.Patience && pause(ctx, n) == nil {
				continue
			}
			return t.count, c.failure(ctx, t, err)
		}
		if err != nil || out == nil || body == nil {
			return t.count, err
		}
		if err := wire.AnswerLimits.JSON(body, out); err != nil {
			return t.count, fmt.Errorf("agent %s: %s %s: its answer makes no sense (is something else listening there?): %w",
				c.config.AgentID, r.method, r.path, err)
		}
		return t.count, nil
	}
}

// brokenOffError is the end of a connection in the middle of an answer.
type brokenOffError struct{ err error }

func (b *brokenOffError) Error() string { return "the answer broke off: " + b.err.Error() }
func (b *brokenOffError) Unwrap() error { return b.err }

// exchange makes a call and reads its answer whole; nil is that of a call without one.
func (c *core) exchange(ctx context.Context, t *try, r *request) ([]byte, error) {
	resp, err := c.do(ctx, t, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.maxAnswer+1))
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return nil, nil
	case int64(len(body)) > c.maxAnswer:
		return nil, fmt.Errorf("agent %s: %s %s: its answer has more than %d MiB", c.config.AgentID, r.method, r.path, c.maxAnswer>>20)
	case err != nil:
		return nil, &brokenOffError{err}
	}
	return body, nil
}

// do makes a call and returns its successful response, whose body is the caller's to close.
func (c *core) do(ctx context.Context, t *try, r *request) (*http.Response, error) {
	// The span, if the caller's context has one, is of all tries until an answer begins.
	ctx, answered := span.Calling(ctx, func() string { return r.call }, r.method)
	req, err := c.request(ctx, r)
	if err != nil {
		answered(0, err)
		return nil, err
	}
	span.Inject(ctx, req.Header)
	via := c.calls
	if r.accept == runnerapi.NDJSON || r.accept == runnerapi.EventStream {
		via = c.streams
	}
	begun := c.tellSlow(ctx, t, r.call, r.query["wait"] != "")
	resp, err := via.Do(req)
	begun()
	answered(statusOf(resp), err)
	if err != nil {
		if resp != nil {
			_ = resp.Body.Close()
		}
		return nil, c.failure(ctx, t, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		defer func() { _ = resp.Body.Close() }()
		return nil, problem.Read(resp)
	}
	return resp, nil
}

func statusOf(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

func (c *core) request(ctx context.Context, r *request) (*retryablehttp.Request, error) {
	var raw any
	if r.body != nil {
		var body bytes.Buffer
		encoder := json.NewEncoder(&body)
		encoder.SetEscapeHTML(false) // it would write each < of a value as \u003c
		if err := encoder.Encode(r.body); err != nil {
			return nil, fmt.Errorf("%s %s: encode the body: %w", r.method, r.path, err)
		}
		raw = body.Bytes()
	}
	media := "application/json"
	if r.raw != nil {
		raw, media = r.raw, r.media
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, r.method, r.url(c.config.ServerName), raw)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	req.Header.Set("User-Agent", c.config.UserAgent)
	req.Header.Set("Accept", "application/json")
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if raw != nil {
		req.Header.Set("Content-Type", media)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.match != "" {
		req.Header.Set("If-Match", r.match)
	}
	if r.lastEvent != "" {
		req.Header.Set("Last-Event-ID", r.lastEvent)
	}
	req.Header.Set(problem.RequestIDHeader, uuid.NewString())
	return req, nil
}

// remove sends a DELETE. That a repeated one finds nothing means that the first was carried out
// and its answer lost.
func (c *core) remove(ctx context.Context, r *request, opts runnerapi.WriteOptions) error {
	tries, err := c.call(ctx, r.write(opts), nil)
	if tries > 1 && problem.Is(err, runnerapi.CodeNotFound) {
		return nil
	}
	return err
}

// pause waits out the n-th backoff of a loop above single calls.
func pause(ctx context.Context, n int) error {
	retry.Wait(ctx, backoff(retryMin, retryMax, n, nil))
	return ctx.Err()
}

// fetch returns a call that is answered with a T.
func fetch[T any](ctx context.Context, c *core, r *request) (T, error) {
	var out T
	_, err := c.call(ctx, r, &out)
	return out, err
}
