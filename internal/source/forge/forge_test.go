package forge_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/forge"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/forgetest"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

var (
	commit = strings.Repeat("c0ffee12", 5)
	kinds  = map[runnerapi.Forge]string{runnerapi.GitHub: forgetest.GitHub, runnerapi.GitLab: forgetest.GitLab, runnerapi.Gitea: forgetest.Gitea}
)

// send sends a report about the repository shop/web of a forge, at the forge's own address.
func send(t *testing.T, s *forgetest.Server, spec runnerapi.SourceReport, secret map[string][]byte, report forge.Report) (int64, error) {
	t.Helper()
	remote := git.Remote{URL: s.HTTPS.URL + "/shop/web.git", Guard: gitserver.Guard}
	at, err := forge.Locate(remote.URL, spec)
	require.NoError(t, err)
	credentials, err := forge.ReadCredentials("git-status", secret, at)
	if err != nil {
		return 0, err
	}
	report.Commit, report.Context = commit, "pipeops/shop/shop/web"
	report.Description = forge.Clip(spec.Forge, report.Description)
	return forge.Send(t.Context(), remote, at, credentials, report)
}

func refused(t *testing.T, err error, reason git.Reason, parts ...string) {
	t.Helper()
	e := &git.Error{}
	require.ErrorAs(t, err, &e)
	assert.Equal(t, reason, e.Reason, e.Error())
	assert.NotEmpty(t, e.Fix)
	assert.NotContains(t, e.Error(), "hush")
	for _, part := range parts {
		assert.Contains(t, e.Error(), part)
	}
}

func TestSend_EachForge(t *testing.T) {
	for kind := range kinds {
		s := forgetest.Start(t, "shop/web", "hush")
		spec := runnerapi.SourceReport{Forge: kind, Credentials: "git-status"}
		secret := s.Secret(t, s.HTTPS.URL+"/shop/")
		long := strings.Repeat("a cause that is long; ", 50)
		for _, report := range []forge.Report{
			{State: runnerapi.ReportPending, Description: "the agent builds the image"},
			{State: runnerapi.ReportPending, Description: "the agent builds the image"}, // sent again after a restart
			{State: runnerapi.ReportFailure, Description: long, URL: "https://shop.example.com"},
			{State: runnerapi.ReportSuccess, Description: "ready", URL: "https://shop.example.com/" + long},
		} {
			_, err := send(t, s, spec, secret, report)
			require.NoError(t, err, "%s: %s", kind, report.State)
		}
		states, failure := s.States(commit), "failure"
		if kind == runnerapi.GitLab {
			failure = "failed"
		}
		assert.Equal(t, "pending", states[0])
		assert.Equal(t, []string{failure, "success"}, states[len(states)-2:], kind)
		sent := s.Sent()[len(states)-2:]
		assert.Equal(t, "pipeops/shop/shop/web", sent[0].Context)
		assert.Equal(t, "https://shop.example.com", sent[0].URL)
		assert.True(t, strings.HasSuffix(sent[0].Description, "…"), sent[0].Description)
		assert.Empty(t, sent[1].URL, "an address that is too long is left out")
		_, err := send(t, s, spec, secret, forge.Report{State: runnerapi.ReportError, Superseded: true})
		require.NoError(t, err)
		states = s.States(commit)
		assert.Equal(t, map[bool]string{true: "canceled", false: "error"}[kind == runnerapi.GitLab], states[len(states)-1])
	}
}

func TestSend_GitHubDeployment(t *testing.T) {
	s := forgetest.Start(t, "shop/web", "hush")
	spec := runnerapi.SourceReport{Forge: runnerapi.GitHub, Credentials: "git-status", Environment: "production"}
	secret := s.Secret(t, s.HTTPS.URL+"/shop/")
	report := forge.Report{State: runnerapi.ReportPending, Environment: "production"}
	id, err := send(t, s, spec, secret, report)
	require.NoError(t, err)
	report.Deployment, report.State, report.URL = id, runnerapi.ReportSuccess, "https://shop.example.com"
	again, err := send(t, s, spec, secret, report)
	require.NoError(t, err)
	assert.Equal(t, id, again)
	report.State, report.Superseded = runnerapi.ReportError, true
	_, err = send(t, s, spec, secret, report)
	require.NoError(t, err)
	assert.Equal(t, []string{commit}, s.Deployments())
	var states []string
	for _, sent := range s.Sent() {
		if sent.Deployment == id {
			states = append(states, sent.State)
		}
	}
	assert.Equal(t, []string{"in_progress", "success", "inactive"}, states)
	assert.Equal(t, "https://shop.example.com", s.Sent()[2].URL)
	assert.Equal(t, []string{"pending", "success", "error"}, s.States(commit))
}

func TestSend_GitHubApp(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	s := forgetest.Start(t, "shop/web", "of somebody else")
	s.UseApp("Iv23li", &key.PublicKey, false)
	spec := runnerapi.SourceReport{Forge: runnerapi.GitHub, Credentials: "git-status"}
	for kind, der := range map[string][]byte{"RSA PRIVATE KEY": x509.MarshalPKCS1PrivateKey(key), "PRIVATE KEY": pkcs8} {
		secret := map[string][]byte{
			"url": []byte(s.HTTPS.URL + "/shop/"), "ca.crt": s.CA(), "githubAppID": []byte("Iv23li\n"), "githubAppInstallationID": []byte("42"),
			"githubAppPrivateKey": pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
		}
		_, err = send(t, s, spec, secret, forge.Report{State: runnerapi.ReportSuccess})
		require.NoError(t, err, kind)
		secret["githubAppInstallationID"] = []byte("43")
		_, err = send(t, s, spec, secret, forge.Report{State: runnerapi.ReportSuccess})
		refused(t, err, git.NotFound)
		secret["githubAppInstallationID"] = []byte("../42")
		_, err = send(t, s, spec, secret, forge.Report{State: runnerapi.ReportSuccess})
		refused(t, err, git.Credentials, "githubAppInstallationID")
		secret["githubAppInstallationID"], secret["githubAppPrivateKey"] = []byte("42"), []byte("hush")
		_, err = send(t, s, spec, secret, forge.Report{State: runnerapi.ReportSuccess})
		refused(t, err, git.Credentials, "githubAppPrivateKey")
	}
	assert.Equal(t, []string{"success", "success"}, s.States(commit))

	secret := map[string][]byte{
		"url": []byte(s.HTTPS.URL + "/shop/"), "ca.crt": s.CA(), "githubAppID": []byte("Iv23li"), "githubAppInstallationID": []byte("42"),
		"githubAppPrivateKey": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}
	_, err = send(t, s, spec, secret, forge.Report{State: runnerapi.ReportSuccess, Environment: "production"})
	refused(t, err, forge.Refused, "permissions requested are not granted")
	s.UseApp("Iv23li", &key.PublicKey, true)
	_, err = send(t, s, spec, secret, forge.Report{State: runnerapi.ReportSuccess, Environment: "production"})
	require.NoError(t, err)
	assert.Equal(t, []string{commit}, s.Deployments())
}

func TestSend_ExplainsRefusals(t *testing.T) {
	for kind := range kinds {
		s := forgetest.Start(t, "shop/web", "hush")
		spec := runnerapi.SourceReport{Forge: kind, Credentials: "git-status"}
		secret := s.Secret(t, s.HTTPS.URL+"/shop/")
		try := func() error {
			_, err := send(t, s, spec, secret, forge.Report{State: runnerapi.ReportSuccess, Description: "ready"})
			return err
		}
		s.UseToken("another")
		refused(t, try(), git.Denied, "refuses the token of Secret git-status")
		s.UseToken("hush")
		s.Only("another")
		if kind == runnerapi.GitHub {
			refused(t, try(), forge.Refused, "No commit found for SHA")
		} else {
			refused(t, try(), git.NotFound, "or not this commit")
		}
		s.Repository = "shop/other"
		refused(t, try(), git.NotFound, "shop/web", "give the token access")
		s.Pause(120)
		err := try()
		refused(t, err, forge.RateLimited)
		pause := &forge.PauseError{}
		require.ErrorAs(t, err, &pause)
		assert.Equal(t, 2*time.Minute, pause.For)
		s.Pause(0)
		s.GoAway(true)
		refused(t, try(), git.Unreachable)
	}
}

// TestSend_RateLimits has GitHub's first limit, which is a 403 with other headers.
func TestSend_RateLimits(t *testing.T) {
	reset := time.Now().Add(10 * time.Minute)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer s.Close()
	f := &forgetest.Server{HTTPS: s}
	f.UseToken("hush")
	_, err := send(t, f, runnerapi.SourceReport{Forge: runnerapi.GitHub}, f.Secret(t, s.URL+"/shop/"), forge.Report{State: runnerapi.ReportSuccess})
	pause := &forge.PauseError{}
	require.ErrorAs(t, err, &pause)
	assert.InDelta(t, 10*time.Minute, pause.For, float64(time.Minute))
}

// TestSend_TokenStays: neither the source nor a server moves the token to another address.
func TestSend_TokenStays(t *testing.T) {
	thief := forgetest.Start(t, "shop/web", "hush")
	s := forgetest.Start(t, "shop/web", "hush")
	secret := s.Secret(t, s.HTTPS.URL+"/shop/")
	delete(secret, "api")
	report := forge.Report{State: runnerapi.ReportSuccess}
	_, err := send(t, s, runnerapi.SourceReport{Forge: runnerapi.Gitea, API: thief.HTTPS.URL + "/api/v1"}, secret, report)
	refused(t, err, git.Credentials, "is not for the API at")
	secret["api"] = []byte(s.HTTPS.URL)
	_, err = send(t, s, runnerapi.SourceReport{Forge: runnerapi.Gitea, API: thief.HTTPS.URL + "/api/v1"}, secret, report)
	refused(t, err, git.Credentials, "is not for the API at")
	_, err = send(t, thief, runnerapi.SourceReport{Forge: runnerapi.Gitea}, secret, report)
	refused(t, err, git.Credentials, "is not for this repository")
	assert.Zero(t, thief.Requests())

	moved := httptest.NewTLSServer(http.RedirectHandler(thief.HTTPS.URL+"/api/v1/repos/shop/web/statuses/"+commit, http.StatusTemporaryRedirect))
	defer moved.Close()
	f := &forgetest.Server{HTTPS: moved}
	f.UseToken("hush")
	_, err = send(t, f, runnerapi.SourceReport{Forge: runnerapi.Gitea}, f.Secret(t, moved.URL+"/shop/"), report)
	refused(t, err, git.Moved)
	assert.Zero(t, thief.Requests())

	closed := git.Remote{URL: s.HTTPS.URL + "/shop/web.git", Guard: egress.Guard{Hosts: egress.EveryHost}}
	at, err := forge.Locate(closed.URL, runnerapi.SourceReport{Forge: runnerapi.Gitea})
	require.NoError(t, err)
	credentials, err := forge.ReadCredentials("git-status", secret, at)
	require.NoError(t, err)
	_, err = forge.Send(t.Context(), closed, at, credentials, report)
	refused(t, err, git.Forbidden)
	assert.Zero(t, s.Requests())
}

// TestSend_HidesToken has a server repeat the token.
func TestSend_HidesToken(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"message":"not ` + r.Header.Get("Authorization") + `\u001b[2J"}`))
	}))
	defer s.Close()
	f := &forgetest.Server{HTTPS: s}
	f.UseToken("hush")
	_, err := send(t, f, runnerapi.SourceReport{Forge: runnerapi.Gitea}, f.Secret(t, s.URL+"/shop/"), forge.Report{State: runnerapi.ReportSuccess})
	refused(t, err, forge.Refused, "not token")
	assert.NotContains(t, err.Error(), "\x1b")
}

func TestLocate(t *testing.T) {
	for _, c := range []struct {
		url   string
		kind  runnerapi.Forge
		api   string
		scope string // of a Secret without api that is enough; empty if the Secret has to name the API
	}{
		{"https://github.com/shop/web.git", runnerapi.GitHub, "", "https://github.com/shop/"},
		{"git@github.com:shop/web.git", runnerapi.GitHub, "", "https://github.com/shop/web.git"},
		{"git@github.com:shop/web.git", runnerapi.GitHub, "https://api.github.com/", "https://github.com/shop/"},
		{"https://shop.ghe.com/shop/web", runnerapi.GitHub, "", "https://shop.ghe.com/shop/"},
		{"ssh://git@git.example.com:2222/shop/web.git", runnerapi.Gitea, "", "https://git.example.com/shop/"},
		{"https://git.example.com/a/b/web.git", runnerapi.GitLab, "", "https://git.example.com/a/"},
		{"https://git.example.com/git/shop/web.git", runnerapi.Gitea, "https://git.example.com/git/api/v1", ""},
		{"ssh://git@[fd00::1]:2222/shop/web.git", runnerapi.Gitea, "", "https://[fd00::1]/shop/"},
	} {
		at, err := forge.Locate(c.url, runnerapi.SourceReport{Forge: c.kind, API: c.api})
		require.NoError(t, err, c.url)
		data := map[string][]byte{"token": []byte("hush"), "url": []byte(c.scope)}
		if c.scope == "" {
			data["url"] = []byte(strings.TrimSuffix(c.url, "web.git"))
			_, err = forge.ReadCredentials("git-status", data, at)
			refused(t, err, git.Credentials, c.api)
			data["api"] = []byte(c.api)
		}
		_, err = forge.ReadCredentials("git-status", data, at)
		require.NoError(t, err, c.url)
	}
	for _, url := range []string{"https://github.com/web.git", "https://github.com/a/b/web.git", "git@github.com:web.git"} {
		_, err := forge.Locate(url, runnerapi.SourceReport{Forge: runnerapi.GitHub})
		p := &problem.Error{}
		require.ErrorAs(t, err, &p, url)
		assert.Equal(t, "url", p.Field)
	}
}

func TestCheckHost(t *testing.T) {
	guard := egress.Guard{Hosts: func() egress.Hosts { return egress.Hosts{Patterns: []string{"github.com"}} }}
	err := forge.CheckHost(git.Remote{URL: "git@github.com:shop/web.git", Guard: guard}, runnerapi.SourceReport{Forge: runnerapi.GitHub})
	p := &problem.Error{}
	require.ErrorAs(t, err, &p)
	assert.Equal(t, string(git.HostForbidden), string(p.Code))
	assert.Equal(t, "report.api", p.Field)
	assert.Contains(t, p.Detail, `"api.github.com"`)
	guard.Hosts = func() egress.Hosts { return egress.Hosts{Patterns: []string{"*github.com"}} }
	assert.NoError(t, forge.CheckHost(git.Remote{URL: "git@github.com:shop/web.git", Guard: guard}, runnerapi.SourceReport{Forge: runnerapi.GitHub}))
}

func TestReadCredentials_NamesMistakes(t *testing.T) {
	at, err := forge.Locate("https://git.example.com/shop/web.git", runnerapi.SourceReport{Forge: runnerapi.Gitea})
	require.NoError(t, err)
	for what, data := range map[string]map[string]string{
		"has no url":               {"token": "hush"},
		"has no token":             {"url": "https://git.example.com/shop/"},
		"is not for this":          {"url": "https://git.example.com/blog/", "token": "hush"},
		"characters that no token": {"url": "https://git.example.com/shop/", "token": "hu\nsh"},
	} {
		secret := map[string][]byte{}
		for key, value := range data {
			secret[key] = []byte(value)
		}
		_, err := forge.ReadCredentials("git-status", secret, at)
		require.ErrorContains(t, err, what)
		assert.True(t, errors.As(err, new(*git.Error)))
	}
}

// TestSend_GitLabDeployment: GitLab knows the address by the environment, which comes with the
// first deployment.
func TestSend_GitLabDeployment(t *testing.T) {
	s := forgetest.Start(t, "shop/web", "hush")
	spec := runnerapi.SourceReport{Forge: runnerapi.GitLab, Credentials: "git-status", Environment: "production"}
	secret := s.Secret(t, s.HTTPS.URL+"/shop/")
	report := forge.Report{State: runnerapi.ReportPending, Environment: "production", Ref: "main"}
	id, err := send(t, s, spec, secret, report)
	require.NoError(t, err)
	report.Deployment, report.State, report.URL = id, runnerapi.ReportSuccess, "https://shop.example.com"
	same, err := send(t, s, spec, secret, report)
	require.NoError(t, err)
	assert.Equal(t, id, same)
	assert.Equal(t, []string{commit}, s.Deployments())
	assert.Equal(t, "https://shop.example.com", s.Environment())
	report.Superseded = true
	_, err = send(t, s, spec, secret, report)
	require.NoError(t, err)
	var states []string
	for _, sent := range s.Sent() {
		if sent.Deployment == id {
			states = append(states, sent.State)
		}
	}
	assert.Equal(t, []string{"running", "success", "canceled"}, states)
	p := at(t, s, runnerapi.GitLab)
	require.NoError(t, forge.Retire(t.Context(), p.remote, p.repository, p.credentials, id))
	assert.Equal(t, "stopped", s.Environment())
	assert.Equal(t, []string{"pending", "success", "canceled"}, s.States(commit))
}
