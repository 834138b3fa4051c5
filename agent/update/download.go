package update

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

const (
	// downloadTimeout bounds a download: 60 MB at 1 Mbit/s.
	downloadTimeout = 10 * time.Minute
	answerTimeout   = 30 * time.Second
	maxRedirects    = 5
)

// Download fetches releases' files. A file is trusted only once its digest matches the signed
// manifest; TLS protects against eavesdropping and delays.
type Download struct {
	// Mirror is used instead of the URL that the control plane names, if set.
	Mirror string
	Roots  *x509.CertPool // nil for the system's
	Proxy  proxy.Func
	Log    zerolog.Logger
}

// hide keeps a site's answers from the control plane, which names the site: otherwise the control
// plane could read in the customer's network. The agent's log has them.
func (d Download) hide(name string, err error) error {
	d.Log.Warn().Err(err).Str("file", name).Msg("self-update: the download failed")
	return fmt.Errorf("%s could not be downloaded (the agent's log says why)", name)
}

// Open begins a download. done ends it.
func (d Download) Open(ctx context.Context, c Candidate, file release.File) (body io.Reader, done func(), err error) {
	target, err := d.locate(c, file.Name)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		cancel()
		return nil, nil, refuse("url: %v", err)
	}
	client := d.client()
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		return nil, nil, d.hide(file.Name, err)
	}
	done = func() {
		_ = resp.Body.Close()
		cancel()
		client.CloseIdleConnections()
	}
	if resp.StatusCode != http.StatusOK {
		done()
		return nil, nil, d.hide(file.Name, fmt.Errorf("%s answers %s", target, resp.Status))
	}
	return resp.Body, done, nil
}

// locate returns the URL of a release's file.
func (d Download) locate(c Candidate, name string) (string, error) {
	base := c.Offer.URL
	if d.Mirror != "" {
		base = d.Mirror + "/" + c.Manifest.Version
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", refuse("url: the release is offered at %q, which is not an https URL", base)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", refuse("url: the release is offered at %q, which has a query or a fragment", base)
	}
	return u.JoinPath(name).String(), nil
}

func (d Download) client() *http.Client {
	return &http.Client{
		Transport: d.Proxy.Use(&http.Transport{
			TLSClientConfig:       &tls.Config{RootCAs: d.Roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   answerTimeout,
			ResponseHeaderTimeout: answerTimeout,
			DisableCompression:    true,
			ForceAttemptHTTP2:     true,
		}),
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Scheme != "https" {
				return errors.New("it leads to a site without TLS")
			}
			if d.Mirror != "" && r.URL.Host != via[0].URL.Host {
				return errors.New("the mirror leads to another site")
			}
			if len(via) >= maxRedirects {
				return errors.New("it leads from site to site")
			}
			return nil
		},
	}
}
