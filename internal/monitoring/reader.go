package monitoring

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	dialTimeout = 3 * time.Second
	askTimeout  = 10 * time.Second
	// maxAnswer bounds an answer of a component, in bytes.
	maxAnswer = 8 << 20
	maxReason = 200 // of what a component says of a failure
)

// answerLimits bounds what an answer takes when it is decoded: each value of a series is three.
var answerLimits = decode.Limits{Bytes: maxAnswer, Values: 1 << 20, Depth: 20}

// Component is what this package needs to know of a component.
type Component struct {
	Namespace string // in which it runs
	URL       string
}

// Apps is what this package needs of the App engine.
type Apps interface {
	// Get refuses a namespace that the agent does not manage.
	Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error)
	Manages(ctx context.Context, namespace string) (bool, error)
}

// Reader answers calls of Runners. With a Meter, it implements backend.Monitoring.
type Reader struct {
	find func(ctx context.Context, component string) (*Component, error)
	apps Apps
	now  func() time.Time
	http *http.Client
	// patience bounds one request to a component, its answer included.
	patience time.Duration
}

// New returns a Reader. find returns where a component is, or nil if the cluster lacks it.
func New(apps Apps, find func(ctx context.Context, component string) (*Component, error)) *Reader {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &Reader{
		find: find, apps: apps, now: time.Now, patience: askTimeout,
		http: &http.Client{
			// No proxy: components are in the cluster. Calls are rare, so no connection is kept.
			Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Through has components asked by this client instead, such as one that goes through the API
// server.
func (r *Reader) Through(c *http.Client) { r.http = c }

// The components that are asked, by the names that `pipeops-agent component` has for them.
const (
	prometheus = "prometheus"
	loki       = "loki"
	opencost   = "opencost"
)

// get asks a component and decodes its answer into out.
func (r *Reader) get(ctx context.Context, component, path string, query url.Values, out any) error {
	at, err := r.located(ctx, component)
	if err != nil {
		return err
	}
	return r.getFrom(ctx, component, at, path, query, out)
}

// located returns where a component is, or the problem that there is none.
func (r *Reader) located(ctx context.Context, component string) (*Component, error) {
	at, err := r.find(ctx, component)
	if err == nil && at == nil {
		return nil, missing(component)
	}
	return at, err
}

func (r *Reader) getFrom(ctx context.Context, component string, at *Component, path string, query url.Values, out any) error {
	patience := r.patience
	if component == opencost { // it makes many requests to Prometheus for one answer
		patience *= 2
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodGet, at.URL+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := r.http.Do(req)
	if err != nil {
		return unreachable(ctx, component, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return unreachable(ctx, component, err)
	case len(body) > maxAnswer:
		return tooMuch(component)
	case resp.StatusCode != http.StatusOK:
		return refused(component, resp.StatusCode, body)
	}
	if err := answerLimits.JSON(body, out); decode.Exceeded(err) {
		return tooMuch(component)
	} else if err != nil {
		return failed(component, "its answer is not understood")
	}
	return nil
}

func missing(component string) error {
	return runnerapi.NotSupported("have the owner of the cluster run: pipeops-agent component install "+component+
		"; one that is there already needs a Service labelled app.kubernetes.io/name="+component+" (docs/cluster-owner/components.md)",
		"the cluster has no component %s", component)
}

// unreachable explains why a component did not answer, unless the caller has gone.
func unreachable(ctx context.Context, component string, err error) error {
	var timeout net.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &timeout) && timeout.Timeout():
		return problem.Errorf(problem.Timeout, fixOf(component)+"; a shorter --since is answered sooner", "the component %s did not answer in time", component)
	}
	return failed(component, "no connection to it was made, or the connection was lost")
}

func failed(component, reason string) error {
	return problem.Errorf(problem.Unavailable, fixOf(component), "the component %s does not work: %s", component, reason)
}

func fixOf(component string) string {
	return "have the owner of the cluster look at " + component + ": pipeops-agent component list"
}

// refused passes on why a component answers with an error.
func refused(component string, status int, body []byte) error {
	var said struct {
		Error   string `json:"error"`   // Prometheus
		Message string `json:"message"` // OpenCost
	}
	text := string(body) // Loki
	if answerLimits.JSON(body, &said) == nil {
		text = said.Error + said.Message
	}
	return failed(component, printable.Shorten(printable.Text(http.StatusText(status)+": "+text), maxReason))
}

func tooMuch(component string) error {
	return problem.Errorf(problem.Invalid, "ask for less: a shorter --since, or a longer --step", "the answer of the component %s has more than %d MiB", component, maxAnswer>>20)
}
