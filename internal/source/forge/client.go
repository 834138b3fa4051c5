package forge

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
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Reasons beside those of package git.
const (
	Refused     git.Reason = "report_refused"
	RateLimited            = git.Reason(problem.TooManyRequests)
)

// PauseError is the error of a forge that asks to be left alone for a while.
type PauseError struct {
	Err *git.Error
	For time.Duration // 0 if the forge does not say how long
}

func (e *PauseError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *PauseError) Unwrap() error { return e.Err }

var (
	errNoApp = errors.New("githubAppID or githubAppInstallationID is not an ID")
	errNoKey = errors.New("githubAppPrivateKey is not an RSA private key in PEM")
)

const (
	maxAnswer     = 64 << 10
	maxQuoted     = 200
	maxRetryAfter = time.Hour
	userAgent     = "pipeops-agent"
)

// client sends the requests of one call of this package.
type client struct {
	repository  Repository
	credentials Credentials
	rights      rights
	host        string
	token       string
	http        *http.Client
}

// rights are what a call needs.
type rights struct {
	doing string
	needs map[runnerapi.Forge]string // for people
	app   map[string]string          // of a GitHub App's token
}

const (
	gitlabAPI  = "the scope api, and the role Developer in the project"
	giteaWrite = "the scope write:repository, and write access to the repository"
)

var reportRights = rights{"report to", map[runnerapi.Forge]string{
	runnerapi.GitHub: "write access to commit statuses, and to deployments where report.environment is set",
	runnerapi.GitLab: gitlabAPI, runnerapi.Gitea: giteaWrite,
}, map[string]string{"statuses": "write"}}

var deployRights = rights{reportRights.doing, reportRights.needs, map[string]string{"statuses": "write", "deployments": "write"}}

// open returns a client for a repository. A GitHub App gets a token of these rights first.
func open(ctx context.Context, remote git.Remote, r Repository, c Credentials, rights rights) (*client, error) {
	remote.Auth = c.auth
	at := &client{
		repository: r, credentials: c, rights: rights, host: r.api.Host, token: c.token,
		http: &http.Client{
			Transport: remote.Transport(),
			// A token goes to one address alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if c.app == nil {
		return at, nil
	}
	if err := at.appToken(ctx); err != nil {
		at.close()
		return nil, err
	}
	return at, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (r Repository) escaped() string {
	owner, name, _ := strings.Cut(r.path, "/")
	return url.PathEscape(owner) + "/" + url.PathEscape(name)
}

// post sends a request and decodes the answer, unless into is nil.
func (c *client) post(ctx context.Context, path string, body, into any) error {
	return c.call(ctx, http.MethodPost, path, body, into, maxAnswer)
}

// call sends a request, with a body unless that is nil, and decodes an answer of limited size.
func (c *client) call(ctx context.Context, method, path string, body, into any, most int) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, c.repository.api.String()+path, bytes.NewReader(text))
	if err != nil {
		return invalid("report.api", "correct it", "makes no address with url")
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	q.Header.Set("User-Agent", userAgent)
	c.authorize(q.Header)
	resp, err := c.http.Do(q)
	if err != nil {
		return git.Explain(err, c.host)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil {
		return git.Explain(err, c.host)
	}
	if resp.StatusCode >= http.StatusMultipleChoices || resp.StatusCode < http.StatusOK {
		return c.refused(resp, answer)
	}
	if into == nil {
		return nil
	}
	if len(answer) > most {
		return git.NewError(git.TooLarge, "wait: it is tried again", "%s answers with more than %d KiB", c.host, most>>10)
	}
	if err := decode.LimitsFor(most).JSON(answer, into); err != nil {
		return git.NewError(git.Unreachable, "correct report.forge and report.api, if the server is of another kind", "%s answers with something else than JSON", c.host)
	}
	return nil
}

func (c *client) authorize(h http.Header) {
	switch c.repository.kind {
	case runnerapi.GitHub:
		h.Set("Authorization", "Bearer "+c.token)
		h.Set("Accept", "application/vnd.github+json")
		h.Set("X-GitHub-Api-Version", "2022-11-28")
	case runnerapi.GitLab:
		h.Set("PRIVATE-TOKEN", c.token)
	case runnerapi.Gitea:
		h.Set("Authorization", "token "+c.token)
	}
}

// alreadySo is GitLab's refusal of a state that the commit has.
const alreadySo = "Cannot transition status"

// refused returns what an answer other than success means.
func (c *client) refused(resp *http.Response, answer []byte) error {
	code, wait := resp.StatusCode, pause(resp.Header, time.Now())
	says := c.quoted(answer)
	switch {
	case code == http.StatusBadRequest && c.repository.kind == runnerapi.GitLab && strings.Contains(says, alreadySo):
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusForbidden && wait > 0:
		return &PauseError{git.NewError(RateLimited, "wait: it is tried again", "%s takes no more requests of this token for now", c.host), wait}
	case code == http.StatusUnauthorized:
		return git.NewError(git.Denied, "put a token that is valid into the Secret", "%s refuses the token of Secret %s%s", c.host, c.credentials.secret, says)
	case code == http.StatusForbidden:
		return git.NewError(git.Denied, "give it "+c.rights.needs[c.repository.kind], "the token of Secret %s may not %s %s%s", c.credentials.secret, c.rights.doing, c.repository.path, says)
	case code == http.StatusNotFound:
		return git.NewError(git.NotFound, "correct url; or give the token access to the repository, with "+c.rights.needs[c.repository.kind],
			"%s has no repository %s that the token can see, or not this commit or request%s", c.host, c.repository.path, says)
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return git.NewError(git.Moved, "set url to where the repository is now, and report.api to where the API is", "%s redirects to another address, to which the agent sends no token", c.host)
	case code >= http.StatusInternalServerError:
		return &PauseError{git.NewError(git.Unreachable, "wait: it is tried again", "%s answers %d", c.host, code), wait}
	}
	return git.NewError(Refused, "see that report.forge is the server's kind, and that the commit is in its repository", "%s answers %d%s", c.host, code, says)
}

// quoted returns the message of an answer, without the token, or nothing.
func (c *client) quoted(answer []byte) string {
	var said struct {
		Message any `json:"message"` // GitLab's may be an object
	}
	if decode.LimitsFor(maxAnswer).JSON(answer, &said) != nil || said.Message == nil {
		return ""
	}
	text, isText := said.Message.(string)
	if !isText {
		raw, err := json.Marshal(said.Message)
		if err != nil {
			return ""
		}
		text = string(raw)
	}
	if c.token != "" {
		text = strings.ReplaceAll(text, c.token, "")
	}
	return ": " + clip(text, maxQuoted)
}

// pause returns how long a forge asks to be left alone.
func pause(h http.Header, now time.Time) time.Duration {
	if wait := retry.Header(h.Get("Retry-After"), now, maxRetryAfter); wait > 0 {
		return wait
	}
	for _, prefix := range []string{"X-RateLimit-", "RateLimit-"} { // GitHub's and GitLab's
		if h.Get(prefix+"Remaining") != "0" {
			continue
		}
		if s, err := strconv.ParseInt(h.Get(prefix+"Reset"), 10, 64); err == nil {
			return min(max(time.Unix(s, 0).Sub(now), time.Second), maxRetryAfter)
		}
	}
	return 0
}
