package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// served is the Runner API of one replica of the agent, as the agent mounts it.
type served struct {
	handler http.Handler
	runner  *x509.Certificate
}

func serve(t *testing.T, env *kubetest.Env, ns string, e *app.Engine) *served {
	t.Helper()
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentOf(ns)})
	require.NoError(t, err)
	cert := runnertest.NewCA(t).Issue(t, credentials.RunnerURI("example.com", "ci"))
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	require.NoError(t, err)
	return &served{runner: leaf, handler: server.New(server.Config{
		Apps: e, Secrets: k.Secrets(), Namespaces: k.Namespaces(), Cluster: k.Cluster(), Journal: k.Journal(), Outcomes: e,
		TrustDomain: "example.com", Log: zerolog.Nop(),
	})}
}

func (s *served) call(t *testing.T, method, path, key, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{s.runner}}}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// TestIdempotencyKey_HoldsAcrossReplicas sends commands to one replica, and the
// same again to another that was not there when they were carried out.
func TestIdempotencyKey_HoldsAcrossReplicas(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	k := key(ns, "web")
	path := "/v1/namespaces/" + ns + "/apps/web"
	first, stop := start(t, env, ns, nil)
	one := serve(t, env, ns, first)
	commands := []struct{ method, path, key, body string }{
		{"PUT", path, "deploy-1", `{"image":"example.com/web:1","env":[{"name":"TOKEN","value":"hunter2"}]}`},
		{"PUT", path, "deploy-2", `{"image":"example.com/web:2"}`},
		{"POST", path + "/scale", "scale-1", `{"replicas":3}`},
		{"POST", path + "/rollback", "rollback-1", `{}`},
		{"POST", path + "/restart", "restart-1", ``},
		{"PUT", "/v1/namespaces/" + ns + "/secrets/s", "secret-1", `{"data":{"a":"hunter3"}}`},
		{"DELETE", "/v1/namespaces/" + ns + "/secrets/s", "secret-2", ``},
	}
	answers := make([]*httptest.ResponseRecorder, len(commands))
	for i, c := range commands {
		answers[i] = one.call(t, c.method, c.path, c.key, c.body)
		require.Less(t, answers[i].Code, 300, "%s: %s", c.key, answers[i].Body)
	}
	stop()
	before := get(t, env, k, &v1alpha1.App{})

	second, _ := start(t, env, ns, nil)
	two := serve(t, env, ns, second)
	for i, c := range commands {
		again := two.call(t, c.method, c.path, c.key, c.body)
		assert.Equal(t, answers[i].Code, again.Code, c.key)
		assert.Equal(t, answers[i].Header().Get("Operation-Id"), again.Header().Get("Operation-Id"), c.key)
		if i >= 5 {
			assert.Equal(t, answers[i].Body.String(), again.Body.String(), c.key)
		}
		other := two.call(t, "PUT", path, c.key, `{"image":"example.com/web:other"}`)
		assert.Equal(t, http.StatusConflict, other.Code, c.key)
		assert.Contains(t, other.Body.String(), `"idempotency_key_reused"`)
	}
	after := get(t, env, k, &v1alpha1.App{})
	assert.Equal(t, before.Generation, after.Generation, "nothing was carried out again")
	assert.Equal(t, before.Annotations, after.Annotations)
	assert.Equal(t, "example.com/web:1", after.Spec.Image)

	rollOut(t, env, k)
	settledIn(t, second, k, runnerapi.PhaseHealthy)
	for i, want := range []runnerapi.OperationState{"superseded", "superseded", "superseded", "succeeded", "succeeded", "succeeded", "succeeded"} {
		var op runnerapi.Operation
		w := two.call(t, "GET", answers[i].Header().Get("Location"), "", "")
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &op), w.Body.String())
		assert.Equal(t, want, op.State, commands[i].key)
		assert.Equal(t, "ci", op.Runner)
	}
	gone := two.call(t, "DELETE", path, "delete-1", "")
	require.Equal(t, http.StatusNoContent, gone.Code, gone.Body.String())
	assert.Equal(t, http.StatusNoContent, two.call(t, "DELETE", path, "delete-1", "").Code)
	assert.Contains(t, two.call(t, "GET", gone.Header().Get("Location"), "", "").Body.String(), `"succeeded"`)
}

// TestOutcome_PerRestart starts a run before the previous one has ended.
func TestOutcome_PerRestart(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	api := serve(t, env, ns, e)
	for kind, body := range map[string]string{
		"jobs":      `{"image":"example.com/web:1","run":"RUN"}`,
		"pipelines": `{"image":"example.com/web:1","run":"RUN","jobs":[{"name":"test"}]}`,
	} {
		path := "/v1/namespaces/" + ns + "/" + kind + "/" + kind
		run := func(name, query string) runnerapi.App {
			w := api.call(t, "PUT", path+query, kind+"-"+name, strings.ReplaceAll(body, "RUN", name))
			require.Less(t, w.Code, 300, w.Body.String())
			var got runnerapi.App
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			if query != "" {
				require.NotNil(t, got.Outcome)
				assert.Equal(t, got.Outcome.State == runnerapi.OperationPending, w.Code == http.StatusAccepted)
			}
			return got
		}
		run("one", "")
		run("two", "")
		assert.Equal(t, runnerapi.OperationSuperseded, run("one", "?wait=10ms").Outcome.State, kind)
		assert.Equal(t, runnerapi.OperationPending, run("two", "?wait=10ms").Outcome.State, kind)
	}
}
