package repository

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What a chart may be. Kubernetes keeps a release in 1 MiB, so none that can be
// installed comes near these.
const (
	maxArchive   = 4 << 20
	maxIndex     = 64 << 20 // read line by line
	fetchTimeout = 30 * time.Second
	maxRedirects = 5
)

// Options say from where charts may come.
type Options struct {
	// HTTPHosts are HOST or HOST:PORT from which charts may come without TLS.
	HTTPHosts []string
	// Guard decides to which hosts and addresses a fetcher connects.
	Guard egress.Guard
	// Transport fetches charts, unguarded; nil for one with the system's roots and proxies.
	Transport http.RoundTripper
}

// Fetcher gets charts: over HTTPS, or over HTTP from hosts that the operator named.
type Fetcher struct {
	transport http.RoundTripper
	plain     []string
}

// New returns a fetcher. It makes no requests.
func New(opts Options) *Fetcher {
	f := &Fetcher{transport: opts.Transport, plain: opts.HTTPHosts}
	if f.transport == nil {
		t := proxy.FromEnvironment().Use(http.DefaultTransport.(*http.Transport).Clone())
		t.MaxIdleConns, t.ResponseHeaderTimeout = 2, fetchTimeout
		f.transport = opts.Guard.Transport(t)
	}
	return f
}

// RoundTrip implements http.RoundTripper. It checks each request, and so also redirects and a
// registry's references.
func (f *Fetcher) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := f.allows(r.URL); err != nil {
		return nil, err
	}
	return f.transport.RoundTrip(r)
}

func (f *Fetcher) allows(u *url.URL) error {
	if u.User != nil { // net/http would send it
		return problem.Errorf(problem.Invalid, "have the owner of the repository remove them; yours are named in credentialsSecret",
			"the chart's URL at %s holds credentials", u.Host).WithField("chart")
	}
	if u.Scheme == "https" || u.Scheme == "http" && f.plainHost(u) {
		return nil
	}
	return problem.Errorf(problem.Invalid, "use https, or have the operator of the agent name the host in PIPEOPS_CHART_HTTP_HOSTS",
		"charts are fetched over https, not from %s://%s", u.Scheme, u.Host).WithField("chart")
}

func (f *Fetcher) plainHost(u *url.URL) bool {
	return slices.Contains(f.plain, u.Host) || slices.Contains(f.plain, u.Hostname())
}

// get opens what is at a URL. The login goes no further than its scope, in redirects too.
func (f *Fetcher) get(ctx context.Context, at *url.URL, l *Login) (io.ReadCloser, error) {
	client := &http.Client{Transport: f, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errors.New("too many redirects")
		}
		if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
			return errors.New("a redirect from https to http")
		}
		if !l.isFor(r.URL) { // net/http looks at the host alone, and takes subdomains for it
			r.Header.Del("Authorization")
		}
		return nil
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, unfetched(at, err)
	}
	req.Header.Set("User-Agent", "pipeops-agent")
	if l.isFor(at) {
		req.SetBasicAuth(l.username, l.password)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, unfetched(at, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, refused(at, resp.StatusCode, l.isFor(at))
	}
	return resp.Body, nil
}

func refused(at *url.URL, status int, sent bool) error {
	fix := "check the URL and the chart's name and version"
	switch {
	case status >= http.StatusInternalServerError || status == http.StatusTooManyRequests:
		return problem.Errorf(problem.Unavailable, "try again later", "%s answered %d", shown(at), status).WithRetryAfter(5 * time.Second)
	case (status == http.StatusUnauthorized || status == http.StatusForbidden) && sent:
		fix = "check username and password in the Secret that credentialsSecret names"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		fix = "it asks for a password: put username and password into a Secret and name it in credentialsSecret"
	}
	return problem.Errorf(problem.Invalid, fix, "%s answered %d", shown(at), status).WithField("chart")
}

// unfetched returns the failure of a transfer, without what may be secret in its URL.
func unfetched(at *url.URL, err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	if at2, ok := errors.AsType[*url.Error](err); ok { // it quotes the URL
		err = at2.Err
	}
	var dns *net.DNSError
	var network *net.OpError
	var closed *egress.RefusedError
	switch {
	case errors.As(err, &closed):
		return problem.Errorf(problem.Invalid, closed.Fix(), "%s cannot be fetched: %v", shown(at), closed).WithField("chart")
	case errors.As(err, &dns) && dns.IsNotFound:
		return problem.Errorf(problem.Invalid, "check the host's name", "there is no host %s", at.Hostname()).WithField("chart")
	case errors.Is(err, context.DeadlineExceeded):
		return problem.Errorf(problem.Timeout, "try again; see whether the agent can reach it", "%s did not answer in time", shown(at))
	case errors.As(err, &dns), errors.As(err, &network) && network.Op == "dial":
		return problem.Errorf(problem.Unavailable, "see whether there is a way to it: DNS, a firewall, or a proxy (HTTPS_PROXY)", "%s cannot be reached: %v", shown(at), err).
			WithField("chart")
	}
	return problem.Errorf(problem.Invalid, "see whether the agent can reach it, and who signed its certificate", "%s cannot be fetched: %v", shown(at), err).
		WithField("chart")
}

// shown returns a URL without user, query and fragment.
func shown(u *url.URL) string {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return plain.String()
}

func parseURL(text, field string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, problem.Errorf(problem.Invalid, "give SCHEME://HOST/PATH; credentials are named in credentialsSecret",
			"this is not a URL of a chart's").WithField(field)
	}
	return u, nil
}

// readAll reads what may have at most limit bytes.
func readAll(r io.Reader, limit int64, what string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, problem.Errorf(problem.Timeout, "try again; see how fast the agent can reach its source", "%s did not arrive in time", what)
	}
	if err != nil {
		return nil, problem.Errorf(problem.Invalid, "send it again", "%s breaks off: %v", what, err).WithField("chart")
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(what, limit)
	}
	return data, nil
}

func tooLarge(what string, limit int64) error {
	return problem.Errorf(problem.TooLarge, "use a smaller chart: Kubernetes keeps a release in 1 MiB", "%s has more than %d MiB", what, limit>>20).
		WithField("chart")
}

// Chart gets the archive that a spec names.
func (f *Fetcher) Chart(ctx context.Context, source runnerapi.ChartSource, l *Login) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	switch {
	case len(source.Archive) > 0:
		return source.Archive, nil
	case source.OCI != "":
		return f.fromRegistry(ctx, source, l)
	}
	repository, err := parseURL(strings.TrimSuffix(source.Repository, "/")+"/", "chart.repository")
	if err != nil {
		return nil, err
	}
	at, err := f.find(ctx, repository, source, l)
	if err != nil {
		return nil, err
	}
	if err := f.allows(at); err != nil {
		return nil, err
	}
	body, err := f.get(ctx, at, l)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return readAll(body, maxArchive, "the chart's archive")
}
