package git

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	service        = "git-upload-pack"
	infoRefs       = "/info/refs"
	headerPatience = 30 * time.Second
	maxRedirects   = 3
	// userAgent begins as Git's does: some servers show a web page to everything else.
	userAgent = "git/2.0 (pipeops-agent)"
)

// overHTTPS is Git's smart HTTP protocol (gitprotocol-http(5)).
type overHTTPS struct {
	host   string
	base   string // of the repository, after redirects
	scope  runnerapi.GitURL
	auth   Auth
	limits Limits
	client *http.Client
}

func newHTTPS(u runnerapi.GitURL, r Remote, l Limits) *overHTTPS {
	s := &overHTTPS{
		host: u.Host, base: "https://" + u.Host + (&url.URL{Path: strings.TrimSuffix(u.Path, "/")}).EscapedPath(),
		scope: r.Auth.Scope, auth: r.Auth, limits: l,
	}
	if s.scope == (runnerapi.GitURL{}) {
		s.scope = u
	}
	s.client = &http.Client{Transport: r.Transport(), CheckRedirect: s.follow}
	return s
}

// Transport connects over HTTPS through the proxy, to what the guard allows. It trusts the CA of
// the credentials.
func (r Remote) Transport() http.RoundTripper {
	return r.Guard.Transport(r.Proxy.Use(&http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: r.Auth.Roots, MinVersion: tls.VersionTLS12},
		ResponseHeaderTimeout: headerPatience, TLSHandshakeTimeout: headerPatience, ForceAttemptHTTP2: true,
	}))
}

// follow keeps the agent at the host that the address names, and credentials with the
// repositories that they are for.
func (s *overHTTPS) follow(q *http.Request, via []*http.Request) error {
	if q.URL.Scheme != "https" || q.URL.Host != via[0].URL.Host {
		return failed(Moved, "set url to where it is now, if you trust that", "the repository has moved to %s://%s", clip(q.URL.Scheme), clip(q.URL.Host))
	}
	if len(via) > maxRedirects {
		return failed(NotGit, "correct url", "the server redirects more than %d times", maxRedirects)
	}
	suffix := infoRefs
	if via[0].Method == http.MethodPost {
		suffix = "/" + service
	}
	base, ok := strings.CutSuffix(q.URL.EscapedPath(), suffix)
	if !ok {
		return failed(NotGit, "give the address that `git clone` takes", "%s redirects to a page that is not a Git repository", s.host)
	}
	to, err := runnerapi.ParseGitURL("https://" + q.URL.Host + base)
	if err != nil {
		return failed(NotGit, "correct url", "the server redirects to an address that %v", err)
	}
	if s.auth.Password != "" && !to.Within(s.scope) {
		return failed(Moved, "set url to where it is now, and name a Secret that is for it, if you trust that",
			"the repository has moved to %s, which the Secret is not for", clip(to.Path))
	}
	return nil
}

func (s *overHTTPS) advertised(ctx context.Context, only *refFilter) (*packp.AdvRefs, error) {
	resp, err := s.do(ctx, http.MethodGet, s.base+infoRefs+"?service="+service, nil, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Header.Get("Content-Type") != "application/x-"+service+"-advertisement" {
		return nil, failed(NotGit, "give the address that `git clone` takes", "what is at %s is not a Git repository", s.base)
	}
	moved := *resp.Request.URL
	moved.RawQuery = ""
	s.base = strings.TrimSuffix(moved.String(), infoRefs)
	return decodeAdvertised(limited(resp.Body, s.limits.Advertised), only, s.host)
}

func (s *overHTTPS) upload(ctx context.Context, request []byte) (io.ReadCloser, error) {
	resp, err := s.do(ctx, http.MethodPost, s.base+"/"+service, request, "application/x-"+service+"-request")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (s *overHTTPS) close() { s.client.CloseIdleConnections() }

func (s *overHTTPS) do(ctx context.Context, method, address string, body []byte, contentType string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, failed(NotGit, "correct url", "%q is not an address", clip(address))
	}
	q.Header.Set("User-Agent", userAgent)
	if contentType != "" {
		q.Header.Set("Content-Type", contentType)
	}
	if s.auth.Password != "" {
		q.SetBasicAuth(s.auth.Username, s.auth.Password)
	}
	resp, err := s.client.Do(q)
	if err != nil {
		return nil, Explain(err, s.host)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, s.status(resp.StatusCode)
}

// Explain returns what an error of a request to a host means. It leaves the address out, which
// net/http puts before every error.
func Explain(err error, host string) error {
	if at, ok := errors.AsType[*url.Error](err); ok {
		err = at.Err
	}
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	if errors.As(err, &verification) || errors.As(err, &authority) {
		return failed(NotTrusted, "put the certificate of the CA that it is from into the Secret, as ca.crt", "the certificate of %s is not to be trusted: %v", host, err)
	}
	return network(err, host)
}

func (s *overHTTPS) status(code int) error {
	switch {
	case code == http.StatusUnauthorized && s.auth.Password == "":
		return failed(WantsPassword, "name a Secret with url, username and password in credentials; if the repository is public, correct url: many servers ask for a password where there is none",
			"%s asks for a password", s.base)
	case code == http.StatusUnauthorized:
		return failed(Denied, "put a password or token that holds into the Secret", "%s does not take the user and password of the Secret", s.base)
	case code == http.StatusForbidden:
		return failed(Denied, "have the user of the Secret be let in to read it", "%s is not for this user", s.base)
	case code == http.StatusNotFound || code == http.StatusGone:
		return failed(NotFound, "correct url; where the repository is private, its server says the same to who may not see it", "there is no repository %s", s.base)
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests:
		return failed(Unreachable, "wait: it is tried again", "%s answers %d", s.host, code)
	}
	return failed(NotGit, "give the address that `git clone` takes", "%s answers %s", s.base, fmt.Sprint(code))
}
