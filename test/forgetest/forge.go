// Package forgetest is a fake forge for tests: over TLS it takes commit statuses and comments, and
// lists pull requests, as GitHub, GitLab and Gitea do, and refuses what they refuse. It hosts no
// repositories; those of a test are in a gitserver.
package forgetest

import (
	"bytes"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// Addresses of the APIs, below the server's.
const (
	GitHub = "/api/v3"
	GitLab = "/api/v4"
	Gitea  = "/api/v1"
)

// Sent is a state that the forge has accepted: of a commit, or of a deployment.
type Sent struct {
	Commit, State, Context, Description, URL string
	Log                                      string // of a deployment at GitHub
	Deployment                               int64
}

// Server is a forge with one repository.
type Server struct {
	HTTPS      *httptest.Server
	Repository string // OWNER/NAME

	mu          sync.Mutex
	token       string
	commits     []string // that are in the repository; nil for any
	away        bool
	pause       int // seconds
	requests    int
	sent        []Sent
	deployments []string // the commit of each, whose ID is its place from 1
	app         *rsa.PublicKey
	appID       string
	deploys     bool // the App may
	tokens      int
	environment string // the address of GitLab's
	pulls       []Pull
	comments    []Comment // whose ID is its place from 1
}

// Start starts a forge whose token this is.
func Start(t *testing.T, repository, token string) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1", repository, token)
}

// StartAt is Start at an address of this machine.
func StartAt(t *testing.T, host, repository, token string) *Server {
	t.Helper()
	s := &Server{Repository: repository, token: token}
	s.HTTPS = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.HTTPS.Config.ErrorLog = nil
	cert, key, err := selfsigned.PEM(host)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	s.HTTPS.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	require.NoError(t, s.HTTPS.Listener.Close())
	s.HTTPS.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	s.HTTPS.StartTLS()
	t.Cleanup(s.HTTPS.Close)
	return s
}

// CA returns the certificate with which clients verify the server.
func (s *Server) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.HTTPS.Certificate().Raw})
}

// UseToken has the forge take another token.
func (s *Server) UseToken(token string) { s.set(func() { s.token = token }) }

// UseApp has the forge give a GitHub App tokens, by which it may also deploy or not.
func (s *Server) UseApp(id string, key *rsa.PublicKey, deploys bool) {
	s.set(func() { s.appID, s.app, s.deploys = id, key, deploys })
}

// Only has the repository hold these commits alone.
func (s *Server) Only(commits ...string) {
	s.set(func() { s.commits = append([]string{}, commits...) })
}

// GoAway has the forge break off all requests, or take them again.
func (s *Server) GoAway(away bool) { s.set(func() { s.away = away }) }

// Pause has the forge ask for a pause of some seconds; 0 for none.
func (s *Server) Pause(seconds int) { s.set(func() { s.pause = seconds }) }

func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Requests returns how many requests came.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Sent returns what the forge has accepted.
func (s *Server) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// States returns the states that the forge has accepted of a commit.
func (s *Server) States(commit string) (states []string) {
	for _, sent := range s.Sent() {
		if sent.Commit == commit && sent.Deployment == 0 {
			states = append(states, sent.State)
		}
	}
	return states
}

// Deployments returns the commits of the deployments.
func (s *Server) Deployments() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deployments)
}

type answer struct {
	status int
	body   any
}

func refuse(status int, message string) answer {
	return answer{status, map[string]string{"message": message}}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.away {
		panic(http.ErrAbortHandler)
	}
	if s.pause > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(s.pause))
		write(w, refuse(http.StatusTooManyRequests, "You have exceeded a secondary rate limit"))
		return
	}
	if r.Method == http.MethodGet {
		write(w, s.route(r, nil))
		return
	}
	var body map[string]any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&body); err != nil {
		write(w, refuse(http.StatusBadRequest, "Problems parsing JSON"))
		return
	}
	write(w, s.route(r, body))
}

func write(w http.ResponseWriter, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a.body)
}

func (s *Server) route(r *http.Request, body map[string]any) answer {
	at, isGitHub := strings.CutPrefix(r.URL.EscapedPath(), GitHub)
	if isGitHub {
		return s.github(r, at, body)
	}
	if at, ok := strings.CutPrefix(r.URL.EscapedPath(), GitLab); ok {
		return s.gitlab(r, at, body)
	}
	if at, ok := strings.CutPrefix(r.URL.EscapedPath(), Gitea); ok {
		return s.gitea(r, at, body)
	}
	return refuse(http.StatusNotFound, "404 page not found")
}

func text(body map[string]any, name string) string {
	s, _ := body[name].(string)
	return s
}

func (s *Server) has(commit string) bool {
	return s.commits == nil || slices.Contains(s.commits, commit)
}

func (s *Server) keep(commit, context string, deployment int64, body map[string]any, link string) {
	s.sent = append(s.sent, Sent{commit, text(body, "state"), context, text(body, "description"), text(body, link), text(body, "log_url"), deployment})
}

func (s *Server) github(r *http.Request, at string, body map[string]any) answer {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if strings.HasPrefix(at, "/app/installations/") {
		return s.installation(token, at, body)
	}
	if token != s.token || r.UserAgent() == "" {
		return refuse(http.StatusUnauthorized, "Bad credentials")
	}
	at, ok := strings.CutPrefix(at, "/repos/"+s.Repository+"/")
	if !ok {
		return refuse(http.StatusNotFound, "Not Found")
	}
	if a, known := s.pullRequests(r, at, body); known {
		return a
	}
	parts := strings.Split(at, "/")
	if len([]rune(text(body, "description"))) > 140 {
		return refuse(http.StatusUnprocessableEntity, "Validation Failed: description is too long (maximum is 140 characters)")
	}
	switch {
	case len(parts) == 2 && parts[0] == "statuses":
		if !s.has(parts[1]) {
			return refuse(http.StatusUnprocessableEntity, "No commit found for SHA: "+parts[1])
		}
		if !slices.Contains([]string{"error", "failure", "pending", "success"}, text(body, "state")) {
			return refuse(http.StatusUnprocessableEntity, "Validation Failed: state")
		}
		s.keep(parts[1], text(body, "context"), 0, body, "target_url")
		return answer{http.StatusCreated, map[string]any{"id": len(s.sent)}}
	case at == "deployments":
		if !s.has(text(body, "ref")) {
			return refuse(http.StatusUnprocessableEntity, "No ref found for: "+text(body, "ref"))
		}
		if contexts, isList := body["required_contexts"].([]any); !isList || len(contexts) > 0 {
			return refuse(http.StatusConflict, "Conflict: Commit status checks failed for "+text(body, "ref"))
		}
		s.deployments = append(s.deployments, text(body, "ref"))
		return answer{http.StatusCreated, map[string]any{"id": len(s.deployments), "environment": body["environment"]}}
	case len(parts) == 3 && parts[0] == "deployments" && parts[2] == "statuses":
		id, err := strconv.Atoi(parts[1])
		if err != nil || id < 1 || id > len(s.deployments) {
			return refuse(http.StatusNotFound, "Not Found")
		}
		if !slices.Contains([]string{"error", "failure", "inactive", "in_progress", "queued", "pending", "success"}, text(body, "state")) {
			return refuse(http.StatusUnprocessableEntity, "Validation Failed: state")
		}
		s.keep(s.deployments[id-1], "", int64(id), body, "environment_url")
		return answer{http.StatusCreated, map[string]any{"id": len(s.sent)}}
	}
	return refuse(http.StatusNotFound, "Not Found")
}

// installation gives a token to a GitHub App that proves itself by its key.
func (s *Server) installation(token, at string, body map[string]any) answer {
	signed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	var claims jwt.Claims
	if err != nil || s.app == nil || signed.Claims(s.app, &claims) != nil || claims.Issuer != s.appID ||
		claims.Expiry.Time().Sub(claims.IssuedAt.Time()).Minutes() > 10 {
		return refuse(http.StatusUnauthorized, "A JSON web token could not be decoded")
	}
	_, name, _ := strings.Cut(s.Repository, "/")
	names, _ := body["repositories"].([]any)
	if at != "/app/installations/42/access_tokens" || len(names) != 1 || names[0] != name {
		return refuse(http.StatusNotFound, "Not Found")
	}
	if _, deploys := body["permissions"].(map[string]any)["deployments"]; deploys && !s.deploys {
		return refuse(http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
	}
	s.tokens++
	s.token = fmt.Sprintf("ghs_%d", s.tokens)
	return answer{http.StatusCreated, map[string]any{"token": s.token, "permissions": body["permissions"]}}
}

func (s *Server) gitlab(r *http.Request, at string, body map[string]any) answer {
	if r.Header.Get("PRIVATE-TOKEN") != s.token {
		return refuse(http.StatusUnauthorized, "401 Unauthorized")
	}
	project := "/projects/" + strings.ReplaceAll(s.Repository, "/", "%2F") + "/"
	if a, known := s.mergeRequests(r, strings.TrimPrefix(at, project), body); known && strings.HasPrefix(at, project) {
		return a
	}
	if what, ok := strings.CutPrefix(at, project+"deployments"); ok {
		return s.gitlabDeployment(r.Method, strings.TrimPrefix(what, "/"), body)
	}
	if r.Method == http.MethodPut && strings.HasPrefix(at, project+"environments/") {
		s.environment = text(body, "external_url")
		return answer{http.StatusOK, map[string]any{"id": 1}}
	}
	if r.Method == http.MethodPost && at == project+"environments/1/stop" {
		s.environment = "stopped"
		return answer{http.StatusOK, map[string]any{"id": 1}}
	}
	commit, ok := strings.CutPrefix(at, project+"statuses/")
	if !ok {
		return refuse(http.StatusNotFound, "404 Project Not Found")
	}
	if !s.has(commit) {
		return refuse(http.StatusNotFound, "404 Commit Not Found")
	}
	state, name := text(body, "state"), text(body, "name")
	if !slices.Contains([]string{"pending", "running", "success", "failed", "canceled", "skipped"}, state) {
		return answer{http.StatusBadRequest, map[string]string{"error": "state does not have a valid value"}}
	}
	if len(text(body, "description")) > 255 || len(text(body, "target_url")) > 255 {
		return answer{http.StatusBadRequest, map[string]any{"message": map[string][]string{"description": {"is too long (maximum is 255 characters)"}}}}
	}
	if last := s.last(commit, name); last == state && state == "pending" {
		return refuse(http.StatusBadRequest, `Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via "enqueue")`)
	}
	s.keep(commit, name, 0, body, "target_url")
	return answer{http.StatusCreated, map[string]any{"id": len(s.sent), "status": state}}
}

func (s *Server) gitlabDeployment(method, id string, body map[string]any) answer {
	state, commit := text(body, "status"), text(body, "sha")
	if method == http.MethodGet {
		return answer{http.StatusOK, map[string]any{"environment": map[string]any{"id": 1}}}
	}
	if !slices.Contains([]string{"running", "success", "failed", "canceled"}, state) {
		return answer{http.StatusBadRequest, map[string]string{"error": "status does not have a valid value"}}
	}
	n, err := strconv.Atoi(id)
	switch {
	case method == http.MethodPost && (!s.has(commit) || text(body, "ref") == "" || body["tag"] == nil || text(body, "environment") == ""):
		return answer{http.StatusBadRequest, map[string]string{"error": "environment, sha, ref and tag are needed"}}
	case method == http.MethodPost:
		s.deployments = append(s.deployments, commit)
		n = len(s.deployments)
	case method != http.MethodPut || err != nil || n < 1 || n > len(s.deployments):
		return refuse(http.StatusNotFound, "404 Not found")
	}
	s.sent = append(s.sent, Sent{Commit: s.deployments[n-1], State: state, Deployment: int64(n)})
	return answer{http.StatusCreated, map[string]any{"id": n, "environment": map[string]any{"id": 1, "external_url": s.environment}}}
}

// Environment returns the address of GitLab's environment.
func (s *Server) Environment() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.environment
}

func (s *Server) last(commit, context string) (state string) {
	for _, sent := range s.sent {
		if sent.Commit == commit && sent.Context == context {
			state = sent.State
		}
	}
	return state
}

func (s *Server) gitea(r *http.Request, at string, body map[string]any) answer {
	if r.Header.Get("Authorization") != "token "+s.token {
		return refuse(http.StatusUnauthorized, "invalid username, password or token")
	}
	repository := "/repos/" + s.Repository + "/"
	if a, known := s.pullRequests(r, strings.TrimPrefix(at, repository), body); known && strings.HasPrefix(at, repository) {
		return a
	}
	commit, ok := strings.CutPrefix(at, repository+"statuses/")
	if !ok || !s.has(commit) {
		return refuse(http.StatusNotFound, "The target couldn't be found.")
	}
	if !slices.Contains([]string{"pending", "success", "error", "failure", "warning"}, text(body, "state")) {
		return refuse(http.StatusUnprocessableEntity, "state")
	}
	s.keep(commit, text(body, "context"), 0, body, "target_url")
	return answer{http.StatusCreated, map[string]any{"id": len(s.sent)}}
}

// Secret returns the content of a Secret for repositories whose addresses begin with url. The forge
// is at another address, which the Secret names.
func (s *Server) Secret(t *testing.T, url string) map[string][]byte {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.token)
	return map[string][]byte{
		"url": []byte(url), "token": bytes.Clone([]byte(s.token)), "api": []byte(s.HTTPS.URL), "ca.crt": s.CA(),
	}
}
