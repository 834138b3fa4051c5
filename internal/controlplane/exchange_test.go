package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// bind makes a Runner that is bound to tokens of a provider.
func (p *plane) bind(f *fakeProvider, name string, claims map[string]string) {
	p.t.Helper()
	_, err := p.admin.Runners.Issue(p.t.Context(), administration.RunnerOptions{
		Name: name, Replace: true, OpenID: &store.Binding{Issuer: f.URL, Claims: claims},
	})
	require.NoError(p.t, err)
}

var ofShop = map[string]string{"repository": "shop/web", "environment": "prod"}

// fingerprint is that of the CA, as jobs have it.
func (p *plane) fingerprint() string {
	return trustanchor.Fingerprint(p.ca.Certificate())
}

// exchange exchanges a token with a key of its own.
func (p *plane) exchange(runner, token string) (credentials.Credentials, error) {
	p.t.Helper()
	e := login.Exchange{
		ControlPlane: p.Advertised().API, Runner: runner, Fingerprint: p.fingerprint(),
		Token: func(context.Context, string) (string, error) { return token, nil },
	}
	return e.Credentials(p.t.Context())
}

// send sends a token with a key, and returns the answer.
func (p *plane) send(runner, token string, key *ecdsa.PrivateKey) *http.Response {
	p.t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	require.NoError(p.t, err)
	body, err := json.Marshal(map[string]string{
		"runner": runner, "token": token, "request": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
	})
	require.NoError(p.t, err)
	return p.call(p.client(), http.MethodPost, login.ExchangePath, string(body))
}

// TestExchange_Certificate: the certificate names the job in both audit logs, and has the grant of
// the Runner. It is not renewed by itself.
func TestExchange_Certificate(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		var f *fakeProvider
		p := startOn(t, on, func(c *Config) {
			f = newFakeProvider(t, c.Now)
			c.OpenID = openIDSettings(f.URL, f.Certificate())
		})
		audit := &auditLog{}
		s := p.labelled("shop", map[string]string{"env": "prod"}).serveAudited(audit)
		p.labelled("lab", map[string]string{"env": "test"})
		grant, err := credentials.ParseGrant("env=prod")
		require.NoError(t, err)
		_, err = p.admin.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ci", Agents: grant, OpenID: &store.Binding{Issuer: f.URL, Claims: map[string]string{
			"repository": "shop/web", "groups": "deployers", "protected": "true", "sub": "repo:shop/web:environment:prod",
		}}})
		require.NoError(t, err)
		known, err := p.store.Runner(t.Context(), "ci")
		require.NoError(t, err)
		assert.Equal(t, p.Advertised().API, known.OpenID.Audience)
		assert.Equal(t, store.CertificateValid, known.State(p.clock.now()))

		c, err := p.exchange("ci", f.idToken(p.Advertised().API, nil))
		require.NoError(t, err)
		cert := p.certificate(c)
		assert.Equal(t, known.Serial, cert.Leaf.SerialNumber.Text(16))
		assert.WithinDuration(t, p.clock.now().Add(15*time.Minute), cert.Leaf.NotAfter, time.Minute)
		const actor = "oidc/repo:shop/web:environment:prod repository=shop/web workflow=shop/web/.github/workflows/deploy.yaml@refs/heads/main commit=3f2a9c1 person=alice"
		assert.Equal(t, actor, credentials.ActorOf(cert.Leaf))
		names, err := p.sees(c)
		require.NoError(t, err)
		assert.Equal(t, []string{"shop"}, names)
		_, err = s.visit(c).Apps().Deploy(t.Context(), runnerapi.Key{Namespace: "production", Name: "web"}, runnerapi.AppSpec{Image: "nginx:1"}, runnerapi.WriteOptions{})
		require.NoError(t, err)
		assert.Contains(t, audit.commands(), "put-app done ci "+actor)
		var exchanged []operatorapi.OperatorRecord
		for _, r := range p.records(2) {
			if r.Command == "exchange-id-token" {
				exchanged = append(exchanged, r)
			}
		}
		require.Len(t, exchanged, 1)
		assert.Equal(t, []string{"runner/ci", "ci", "done"}, []string{exchanged[0].Operator, exchanged[0].Name, string(exchanged[0].Outcome)})
		assert.Contains(t, string(exchanged[0].Arguments), actor)
		issued, err := p.store.Certificates(t.Context(), store.CertificatesWanted{Roles: []string{ca.RoleRunner}, Names: []string{"ci"}, Limit: 10})
		require.NoError(t, err)
		require.Len(t, issued, 1)
		assert.Equal(t, "exchange: "+actor, issued[0].Reason)

		resp := p.call(p.client(cert), http.MethodPost, login.Path, "")
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		requireProblem(t, refusal(resp), "certificate_unknown", "none is renewed")

		// Another job at the same time, and the end of both.
		other, err := p.exchange("ci", f.idToken(p.Advertised().API, map[string]any{"sha": "77"}))
		require.NoError(t, err)
		for _, each := range []credentials.Credentials{c, other} {
			_, err = p.sees(each)
			require.NoError(t, err)
		}
		require.NoError(t, p.admin.Runners.Revoke(t.Context(), "ci"))
		for _, each := range []credentials.Credentials{c, other} {
			_, err = p.sees(each)
			requireProblem(t, err, "certificate_unknown", "was revoked")
		}
		await.Until(t, "the agent knows", func() bool { return s.heardRevocation() })
		assert.Equal(t, []string{known.Serial}, s.heard().RevokedRunners)
	})
}

// TestExchange_RefusesTokens tries tokens for which there is no certificate.
func TestExchange_RefusesTokens(t *testing.T) {
	p, f := startWithFake(t)
	p.bind(f, "ci", ofShop)
	p.bind(f, "gone", ofShop)
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "gone"))
	p.issue("builder", "")
	audience, key := p.Advertised().API, selfsigned.Key(t)
	used := f.idToken(audience, nil)
	require.Equal(t, http.StatusOK, p.send("ci", used, key).StatusCode)
	unnamed := f.idToken(audience, map[string]any{"jti": nil})
	require.Equal(t, http.StatusOK, p.send("ci", unnamed, key).StatusCode)

	type claims = map[string]any
	token := func(change claims) string { return f.idToken(audience, change) }
	stranger := newFakeProvider(t, p.clock.now)
	for name, attack := range map[string]struct{ runner, token, says string }{
		"another repository":      {"ci", token(claims{"repository": "evil/web"}), `the claim repository of the ID token is "evil/web", and the Runner is bound to "shop/web"`},
		"the same in other case":  {"ci", token(claims{"repository": "Shop/Web"}), "the claim repository"},
		"a longer repository":     {"ci", token(claims{"repository": "shop/web-fork"}), "the claim repository"},
		"no repository":           {"ci", token(claims{"repository": nil}), "the claim repository of the ID token is missing"},
		"a null repository":       {"ci", token(claims{"repository": []any{nil}}), "the claim repository"},
		"an object":               {"ci", token(claims{"repository": claims{"shop/web": "shop/web"}}), "is missing"},
		"another environment":     {"ci", token(claims{"environment": "staging"}), "the claim environment"},
		"an expired token":        {"ci", token(claims{"exp": f.now().Add(-time.Minute).Unix()}), "expired"},
		"no end":                  {"ci", token(claims{"exp": nil}), "expired"},
		"a token of later":        {"ci", token(claims{"nbf": f.now().Add(time.Hour).Unix()}), "not before"},
		"no subject":              {"ci", token(claims{"sub": nil}), "it has no sub"},
		"another audience":        {"ci", f.idToken("https://github.com/shop", nil), "expected audience"},
		"another issuer":          {"ci", stranger.idToken(audience, nil), "the Runner is bound to"},
		"an issuer's name":        {"ci", stranger.idToken(audience, claims{"iss": f.URL}), "failed to verify"},
		"another key":             {"ci", signed(t, jose.ES256, selfsigned.Key(t), f.jobClaims(audience, nil)), "failed to verify"},
		"HS256":                   {"ci", signed(t, jose.HS256, []byte(strings.Repeat("k", 64)), f.jobClaims(audience, nil)), "unexpected signature algorithm"},
		"none":                    {"ci", unsigned(t, f.jobClaims(audience, nil)), "not valid"},
		"no token":                {"ci", "x", "not valid"},
		"a used token":            {"ci", used, "it was exchanged before"},
		"a used token without ID": {"ci", unnamed, "it was exchanged before"},
		"a revoked Runner":        {"gone", token(nil), "Runner gone was revoked"},
		"an unknown Runner":       {"nobody", token(nil), "there is no Runner nobody that is bound to ID tokens"},
		"a Runner with a file":    {"builder", token(nil), "there is no Runner builder that is bound to ID tokens"},
	} {
		resp := p.send(attack.runner, attack.token, selfsigned.Key(t))
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, name)
		err := refusal(resp)
		requireProblem(t, err, problem.Unauthorized, attack.says)
		assert.NotContains(t, err.Error(), strings.Split(attack.token, ".")[0]+".", name)
	}
	assert.Equal(t, http.StatusOK, p.send("ci", used, key).StatusCode, "the same key: its answer was lost")
	p.clock.forward(10 * time.Minute)
	assert.Equal(t, http.StatusUnauthorized, p.send("ci", used, key).StatusCode, "it has expired by now")
	require.NoError(t, p.store.ForgetIDTokens(t.Context(), p.clock.now().Add(2*time.Hour)))

	for name, body := range map[string]string{
		"not JSON": `{"runner":`, "no token": `{"runner":"ci","request":"x"}`, "no request": `{"runner":"ci","token":"secret-of-it"}`,
		"no PEM": `{"runner":"ci","token":"secret-of-it","request":"x"}`, "too much": `{"runner":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		resp := p.call(p.client(), http.MethodPost, login.ExchangePath, body)
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge}, resp.StatusCode, name)
		assert.NotContains(t, refusal(resp).Error(), "secret-of-it", name)
	}
}

// TestExchange_OneKeyWins sends one token with several keys at once.
func TestExchange_OneKeyWins(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		var f *fakeProvider
		p := startOn(t, on, func(c *Config) {
			f = newFakeProvider(t, c.Now)
			c.OpenID = openIDSettings(f.URL, f.Certificate())
		})
		p.bind(f, "ci", ofShop)
		token := f.idToken(p.Advertised().API, nil)
		var won, refused atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				_, err := p.exchange("ci", token)
				if err == nil {
					won.Add(1)
				} else if assert.ErrorContains(t, err, "it was exchanged before") {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		assert.Equal(t, []int32{1, 7}, []int32{won.Load(), refused.Load()})
		issued, err := p.store.Certificates(t.Context(), store.CertificatesWanted{Roles: []string{ca.RoleRunner}, Names: []string{"ci"}, Limit: 10})
		require.NoError(t, err)
		assert.Len(t, issued, 1, "a refused token has no certificate signed")
	})
}

// TestExchange_LongJob: a job that takes longer than its certificate exchanges its token again,
// with the key that it has.
func TestExchange_LongJob(t *testing.T) {
	p, f := startWithFake(t)
	p.labelled("shop", nil)
	p.bind(f, "ci", ofShop)
	token := f.idToken(p.Advertised().API, map[string]any{"exp": p.clock.now().Add(time.Hour).Unix()})
	c, err := p.exchange("ci", token)
	require.NoError(t, err)
	opened := func(token login.Token) *announce.SnapshotClient {
		keep, err := login.New(login.Config{Credentials: c, Token: token, Now: p.clock.now})
		require.NoError(t, err)
		t.Cleanup(keep.Close)
		return &announce.SnapshotClient{BaseURL: c.ControlPlane, HTTPClient: keep.HTTPClient()}
	}
	with := opened(func(context.Context, string) (string, error) { return token, nil })
	without := opened(nil)
	p.clock.forward(16 * time.Minute)
	agents, err := with.Agents(t.Context())
	require.NoError(t, err)
	assert.Len(t, agents, 1)
	_, err = without.Agents(t.Context())
	require.ErrorContains(t, err, "none is renewed")
	p.clock.forward(time.Hour)
	_, err = with.Agents(t.Context())
	require.ErrorContains(t, err, "expired", "the token has ended as well")
}

// TestExchange_IssuerAway: not to know is no refusal.
func TestExchange_IssuerAway(t *testing.T) {
	p, f := startWithFake(t)
	p.bind(f, "ci", ofShop)
	f.away.Store(true)
	resp := p.send("ci", f.idToken(p.Advertised().API, nil), selfsigned.Key(t))
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	assert.Contains(t, refusal(resp).Error(), "the issuer "+f.URL+" cannot be asked for its keys now")
	f.away.Store(false)
	p.clock.forward(3 * time.Second)
	assert.Equal(t, http.StatusOK, p.send("ci", f.idToken(p.Advertised().API, nil), selfsigned.Key(t)).StatusCode)
	f.away.Store(true)
	assert.Equal(t, http.StatusOK, p.send("ci", f.idToken(p.Advertised().API, nil), selfsigned.Key(t)).StatusCode, "its keys are known")
}

// TestExchange_FormerCA: a key of a former CA makes no certificate of a bound Runner.
func TestExchange_FormerCA(t *testing.T) {
	p, f := startWithFake(t)
	p.bind(f, "ci", ofShop)
	c, err := p.exchange("ci", f.idToken(p.Advertised().API, nil))
	require.NoError(t, err)
	for _, step := range []ca.Step{ca.Start, ca.Sign} {
		_, _, err = p.admin.CA.Rotate(t.Context(), step, administration.RotateOptions{Force: true})
		require.NoError(t, err)
	}
	await.Until(t, "the new CA signs", func() bool { return !p.ca.Current(p.certificate(c).Leaf) })
	_, err = p.sees(c)
	require.NoError(t, err, "it is in the log of certificates")
	status, _, err := p.admin.CA.Rotate(t.Context(), ca.Finish, administration.RotateOptions{DryRun: true, Force: true})
	require.NoError(t, err)
	assert.Empty(t, status.NotReady, "a Runner that gets new certificates all the time does not keep a CA")
	require.NoError(t, p.store.ForgetCertificates(t.Context(), p.clock.now().Add(time.Hour)))
	_, err = p.sees(c)
	requireProblem(t, err, "certificate_unknown", "was not issued for an ID token")
	c, err = p.exchange("ci", f.idToken(p.Advertised().API, nil))
	require.NoError(t, err)
	_, err = p.sees(c)
	require.NoError(t, err, "of the new CA")
}

// TestExchange_Program: a job deploys with nothing but its token, as on GitHub and on GitLab.
func TestExchange_Program(t *testing.T) {
	p, f := startWithFake(t)
	audit := &auditLog{}
	s := p.labelled("shop", nil).serveAudited(audit)
	p.bind(f, "ci", ofShop)
	program, err := programs.Runner.Build(t.Context())
	require.NoError(t, err)
	base := []string{
		"HOME=" + t.TempDir(), "XDG_CONFIG_HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), login.EnvControlPlane + "=" + p.Advertised().API,
		login.EnvRunner + "=ci", login.EnvFingerprint + "=" + p.fingerprint(),
	}
	run := func(environ []string, args ...string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append(args, "--patience", "10s")...)
		cmd.Env = slices.Concat(base, environ)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	deploy := []string{"deploy", "shop", "web", "--image", "registry.example.com/shop/web:1", "--port", "8080", "--wait=0"}

	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) { t.Helper(); require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600)) }
	write(f.idToken(p.Advertised().API, nil))
	out, err := run([]string{login.EnvTokenFile + "=" + file}, deploy...)
	require.NoError(t, err, out)
	assert.Contains(t, strings.Join(audit.commands(), "\n"), "put-app done ci oidc/repo:shop/web:environment:prod repository=shop/web")
	out, err = run([]string{login.EnvTokenFile + "=" + file}, "agents")
	require.Error(t, err, "a thief, or another command")
	assert.Contains(t, out, "it was exchanged before")

	// Several commands with one token.
	gitlab := []string{login.EnvToken + "=" + f.idToken(p.Advertised().API, nil), "PIPEOPS_CONTEXT=ci"}
	out, err = run(gitlab, "login", "--oidc", "--context", "ci")
	require.NoError(t, err, out)
	for range 2 {
		out, err = run(gitlab, "agents")
		require.NoError(t, err, out)
		assert.Contains(t, out, "shop")
	}
	out, err = run([]string{login.EnvToken + "=" + f.idToken(p.Advertised().API, map[string]any{"repository": "evil/web"})}, "agents")
	require.Error(t, err)
	assert.Contains(t, out, "the claim repository of the ID token")

	out, err = run([]string{login.EnvTokenFile + "=" + file, login.EnvFingerprint + "=" + strings.Repeat("0", 64)}, "agents")
	require.Error(t, err, "another control plane, which does not get the token")
	assert.Contains(t, out, "fix: set "+login.EnvFingerprint)

	// GitHub gives each command a token of its own.
	job := f.gitHub()
	for range 2 {
		out, err = run(job("of-the-job"), "status", "shop", "web")
		require.NoError(t, err, out)
	}
	out, err = run(job("another"), "agents")
	require.Error(t, err)
	assert.Contains(t, out, "id-token: write")
	out, err = run(nil, "agents")
	require.Error(t, err)
	assert.Contains(t, out, "there is no ID token")
	assert.NotEmpty(t, s.backend.Calls())
}

// gitHub serves tokens as GitHub does to its jobs. It returns the environment of a job with a
// bearer, which is of-the-job if the job has the permission.
func (f *fakeProvider) gitHub() func(bearer string) []string {
	github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer of-the-job" || r.URL.Query().Get("api-version") != "2" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		assert.NoError(f.t, json.NewEncoder(w).Encode(map[string]any{"count": 1, "value": f.idToken(r.URL.Query().Get("audience"), nil)}))
	}))
	f.t.Cleanup(github.Close)
	return func(bearer string) []string {
		return []string{"ACTIONS_ID_TOKEN_REQUEST_URL=" + github.URL + "/token?api-version=2", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=" + bearer}
	}
}

// TestExchange_Console binds a Runner in the console, which shows what its jobs need.
func TestExchange_Console(t *testing.T) {
	p, f := startWithFake(t)
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	form := url.Values{"name": {"ci"}, "agents": {"env=prod"}, "issuer": {f.URL}, "claims": {"repository=shop/web environment=prod"}}
	status, body := b.change("/console/runners/new", form)
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, login.EnvRunner+"=ci\n"+login.EnvFingerprint+"="+p.fingerprint())
	assert.NotContains(t, body, "PRIVATE KEY")
	_, body = b.get("/console/runners")
	assert.Contains(t, body, "for ID tokens of")
	assert.Contains(t, body, f.URL+" environment=prod repository=shop/web")
	_, err := p.exchange("ci", f.idToken(p.Advertised().API, nil))
	require.NoError(t, err)

	status, body = b.change("/console/runners/ci/grant", url.Values{"agents": {"env=test"}, "from": {"env=prod"}})
	require.Equal(t, http.StatusOK, status, body)
	known, err := p.store.Runner(t.Context(), "ci")
	require.NoError(t, err)
	assert.Equal(t, "env=test", known.Agents)
	assert.Equal(t, ofShop, known.OpenID.Claims)
	for field, says := range map[string]string{"claims": "and the issuer has tokens for others too", "issuer": "is not https://HOST"} {
		wrong := maps.Clone(form)
		wrong.Set("name", "other")
		wrong.Del(field)
		_, body = b.change("/console/runners/new", wrong)
		assert.Contains(t, body, says, field)
	}
}
