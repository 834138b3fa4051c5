package attackers

import (
	"context"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	runnerlogin "github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// issuerCert is of the issuer of ID tokens, which the control plane trusts from its start.
var issuerCert tls.Certificate

// issuer is a stand-in for a CI system that gives each job an ID token.
type issuer struct {
	t   *testing.T
	url string
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t, key: selfsigned.Key(t)}
	mux := http.NewServeMux()
	answer := func(path string, body func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { assert.NoError(t, json.NewEncoder(w).Encode(body())) })
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys", "id_token_signing_alg_values_supported": []string{"ES256", "none"}}
	})
	answer("/keys", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}}
	})
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{issuerCert}}
	server.StartTLS()
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

// token returns the token of a job of the repository shop/web, with other claims, or without those
// that are nil.
func (i *issuer) token(key *ecdsa.PrivateKey, change map[string]any) string {
	i.t.Helper()
	claims := map[string]any{
		"iss": i.url, "aud": sys.APIURL(), "sub": "repo:shop/web", "repository": "shop/web", "jti": fmt.Sprint(time.Now().UnixNano()),
		"iat": time.Now().Unix(), "exp": time.Now().Add(10 * time.Minute).Unix(),
	}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	text, err := json.Marshal(claims)
	require.NoError(i.t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k1"}}, nil)
	require.NoError(i.t, err)
	signed, err := signer.Sign(text)
	require.NoError(i.t, err)
	compact, err := signed.CompactSerialize()
	require.NoError(i.t, err)
	return compact
}

// job is who exchanges tokens: each call has another key.
func (i *issuer) job(runner, token string) string {
	i.t.Helper()
	key, err := identity.NewKey()
	require.NoError(i.t, err)
	csr, err := identity.CSR(key)
	require.NoError(i.t, err)
	text, err := json.Marshal(runnerlogin.ExchangeRequest{Runner: runner, Token: token, Request: csr})
	require.NoError(i.t, err)
	return string(text)
}

// plane makes calls to the control plane without a certificate.
func plane(t *testing.T) *caller {
	t.Helper()
	creds, err := credentials.Load(sys.RunnerCredentials(honest))
	require.NoError(t, err)
	roots, err := creds.Roots()
	require.NoError(t, err)
	host := strings.TrimPrefix(sys.APIURL(), "https://")
	c := &caller{host: host, edge: host, tls: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}}
	c.client, c.http1 = c.over(t, "h2"), c.over(t, "http/1.1")
	return c
}

// signers is a policy that demands signed images.
const signers = `rules:
  - name: pipeline
    commands: ["*", put-source, apply-manifests]
    kinds: [ConfigMap, Service, Deployment.apps, Job.batch, Pod]
    imageSigners:
      - images: [apps.test, unreachable.invalid]
        keyless: [{identity: "https://ci.example.com/shop/web", issuer: "https://ci.example.com"}]
`

// TestPipeline_Hostile has people near a pipeline, who know the secret of a webhook, tokens of jobs
// that are not theirs, or where an image is.
func TestPipeline_Hostile(t *testing.T) {
	setPolicy(t, signers)
	_, err := sys.Cluster.Kubectl(t.Context(), "apply", "--server-side", "-f", "../../../deployments/sources.yaml")
	require.NoError(t, err)
	git, c := startGit(t), newCaller(t, honest)
	gitLogin(t, git, "pipeline-login")
	repository := git.Create(t, "team/pipeline")
	good := repository.Commit(map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good-pipeline}\ndata: {a: b}\n"})
	const path = "/v1/namespaces/production/sources/pipeline"
	put := c.call(t.Context(), http.MethodPut, path, map[string]any{"url": git.url + "/pipeline", "type": "manifests", "credentials": "pipeline-login", "interval": "24h"}, nil)
	require.Less(t, put.status, 300, "%v", put)
	t.Cleanup(func() {
		gone := c.call(context.Background(), http.MethodDelete, path, nil, nil)
		assert.Less(t, gone.status, 300, "%v", gone)
	})
	followed := func() (commit string) {
		t.Helper()
		out, err := sys.Runner(t.Context(), honest, "source", "sync", agentName, "pipeline", "-n", production, "--wait=1m", "-o", "json")
		require.NoError(t, err)
		var got struct{ Status struct{ Commit string } }
		require.NoError(t, json.Unmarshal([]byte(out), &got), out)
		return got.Status.Commit
	}
	require.Equal(t, good, followed())
	out, err := sys.Runner(t.Context(), honest, "source", "webhook", "set", agentName, "pipeline", "-n", production, "-o", "json")
	require.NoError(t, err)
	var hook announce.SourceWebhook
	require.NoError(t, json.Unmarshal([]byte(out), &hook), out)

	i, p := newIssuer(t), plane(t)
	for _, runner := range []string{"ci", "gone"} {
		_, err = sys.ControlPlane(t.Context(), "runner", "create", runner, "--oidc-issuer", i.url, "--claim", "repository=shop/web")
		require.NoError(t, err)
	}
	_, err = sys.ControlPlane(t.Context(), "runner", "revoke", "gone")
	require.NoError(t, err)
	used := i.token(i.key, nil)
	s := open(t, func() {
		got := p.call(t.Context(), http.MethodPost, runnerlogin.ExchangePath, i.job("ci", used), nil)
		require.Equal(t, http.StatusOK, got.status, "%v", got)
	})
	s.try(t, p, slices.Concat(jobs(i, used), pushes(t, hook), images(c)))
	assert.Equal(t, good, followed(), "what the repository has is what is applied")
	s.close()
}

// says returns an error unless an answer gives a reason.
func says(reason string) func(answer) error {
	return func(a answer) error {
		if !strings.Contains(string(a.body), reason) {
			return fmt.Errorf("it does not say %q: %.400s", reason, a.body)
		}
		return nil
	}
}

// jobs are attempts to become a Runner by ID tokens.
func jobs(i *issuer, used string) []attempt {
	type claims = map[string]any
	refused := func(name, tries, runner, token, reason string) attempt {
		return attempt{name: name, tries: tries, want: one("401 unauthorized"), within: says(reason), do: send(http.MethodPost, runnerlogin.ExchangePath, i.job(runner, token))}
	}
	of := func(name, tries, reason string, change claims) attempt {
		return refused(name, tries, "ci", i.token(i.key, change), reason)
	}
	parts := strings.Split(i.token(i.key, nil), ".")
	return []attempt{
		of("another repository's job", "deploy from one's own repository", "repository", claims{"repository": "evil/web"}),
		of("a repository that begins so", "pass for another repository", "repository", claims{"repository": "shop/web-evil"}),
		of("a list of repositories", "pass for another repository", "repository", claims{"repository": []string{"evil/web"}}),
		of("no repository", "leave out what is checked", "repository", claims{"repository": nil}),
		of("another service's audience", "use what another service was sent", "audience", claims{"aud": "https://vault.example.com"}),
		of("no audience", "use what any service was sent", "audience", claims{"aud": nil}),
		of("another issuer", "pass for the issuer", "issuer", claims{"iss": "https://evil.example.com"}),
		of("a token of yesterday", "use a token out of a log", "expired", claims{"iat": time.Now().Add(-25 * time.Hour).Unix(), "exp": time.Now().Add(-24 * time.Hour).Unix()}),
		of("a token of tomorrow", "keep a token for later", "before the nbf", claims{"nbf": time.Now().Add(24 * time.Hour).Unix()}),
		of("no end", "keep a token for ever", "expired", claims{"exp": nil}),
		of("no subject", "leave no trace in the audit log", "sub", claims{"sub": ""}),
		refused("a token again, with another key", "use the token of a job that ran", "ci", used, "key"),
		refused("another key's signature", "pass for the issuer", "ci", i.token(selfsigned.Key(i.t), nil), "signature"),
		refused("no signature", "pass for the issuer", "ci", "eyJhbGciOiJub25lIn0."+parts[1]+".", "not valid"),
		refused("dots", "crash the reader of tokens", "ci", "..", "not valid"),
		refused("a revoked Runner", "come back", "gone", i.token(i.key, nil), "revoked"),
		refused("a Runner with credentials", "become another Runner", honest, i.token(i.key, nil), ""),
		refused("a Runner that is not there", "find out which Runners there are", "nobody", i.token(i.key, nil), ""),
	}
}

// pushes are events of who knows a webhook's URL, and at the end its secret. An event that is
// accepted leads to a look, which finds what the repository has.
func pushes(t *testing.T, hook announce.SourceWebhook) []attempt {
	t.Helper()
	at, err := url.Parse(hook.URL)
	require.NoError(t, err)
	body := `{"ref":"refs/heads/main","after":"` + strings.Repeat("e", 40) + `"}`
	signed := func(secret, text string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(text))
		return "sha256=" + hex.EncodeToString(mac.Sum(nil))
	}
	push := func(name, tries, want string, header ...string) attempt {
		return attempt{name: name, tries: tries, want: one(want), do: send(http.MethodPost, at.Path, body, header...)}
	}
	const wrong, taken = "403 forbidden", "202"
	return []attempt{
		push("an event without a signature", "have the agent look", wrong),
		push("another secret", "guess the secret", wrong, "X-Hub-Signature-256", signed("guessed", body)),
		push("an empty secret", "guess the secret", wrong, "X-Hub-Signature-256", signed("", body)),
		push("another body's signature", "change an event", wrong, "X-Hub-Signature-256", signed(hook.Secret, body+" ")),
		push("an empty signature", "have nothing compared", wrong, "X-Hub-Signature-256", "sha256="),
		push("an old form", "have a weaker hash compared", wrong, "X-Hub-Signature", strings.Replace(signed(hook.Secret, body), "sha256=", "sha1=", 1)),
		push("GitLab's token, guessed", "guess the secret", wrong, "X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", "guessed"),
		push("the stolen secret, a commit that is not there", "have another commit deployed", taken, "X-Hub-Signature-256", signed(hook.Secret, body)),
		push("the same event again", "have it deployed after all", taken, "X-Hub-Signature-256", signed(hook.Secret, body)),
	}
}

// images are attempts to run unsigned images.
func images(c *caller) []attempt {
	digest := "@sha256:" + strings.Repeat("a", 64)
	deploy := func(name, tries, path, body, want, reason string) attempt {
		return attempt{name: name, tries: tries, want: one(want), within: says(reason), do: func(ctx context.Context, _ *caller) answer {
			return c.call(ctx, http.MethodPut, "/v1/namespaces/production"+path, body, nil)
		}}
	}
	const app, job = "/apps/unsigned", "/jobs/unsigned"
	return []attempt{
		deploy("an image by its tag", "have the tag moved after the check", app, `{"image":"`+image+`"}`, "403 policy_denied", "digest"),
		deploy("an older tag", "go back to what was signed once", app, `{"image":"apps.test/hello:0.1"}`, "403 policy_denied", "digest"),
		deploy("a Job's image by its tag", "run it as a Job", job, `{"image":"`+image+`"}`, "403 policy_denied", "digest"),
		deploy("an init container's image", "run it before the App", app, `{"image":"busybox@sha256:`+strings.Repeat("b", 64)+`","initContainers":[{"name":"a","image":"`+image+`"}]}`, "403 policy_denied", "digest"),
		deploy("a registry that is away", "have the check skipped", app, `{"image":"unreachable.invalid/web`+digest+`"}`, "503 image_signature_unavailable", "signatures of image"),
	}
}

// trustIssuer has the control plane trust the issuer of ID tokens.
func trustIssuer(s *harness.System) error {
	dir, err := os.MkdirTemp(s.Dir, "issuer-*")
	if err != nil {
		return err
	}
	if err := selfsigned.Write(dir, "127.0.0.1"); err != nil {
		return err
	}
	s.ControlPlaneArgs = append(s.ControlPlaneArgs, "--openid-ca", filepath.Join(dir, "ca.crt"))
	issuerCert, err = tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	return err
}
