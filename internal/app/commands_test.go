package app_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
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
	return &served{runner: leaf, handler: server.New(runnertest.AllowAll{}, server.Config{
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

// commands is a random order of commands, for testing/quick.
type commands []command

type command struct {
	verb string
	n    int
}

// Generate makes commands a quick.Generator.
func (commands) Generate(r *rand.Rand, size int) reflect.Value {
	verbs := []string{"deploy", "deploy", "deploy", "scale", "scale", "rollback", "rollback", "delete", "pause", "resume"}
	all := commands{{"deploy", r.Intn(4)}}
	for range 3 + r.Intn(min(size, 12)) {
		all = append(all, command{verbs[r.Intn(len(verbs))], r.Intn(4)})
	}
	return reflect.ValueOf(all)
}

// model is what the cluster should come to.
type model struct {
	there    bool
	image    string
	replicas int32
	paused   bool
	history  []string // images, in order
}

func (m *model) apply(c command) {
	switch c.verb {
	case "deploy":
		image := fmt.Sprintf("example.com/web:%d", c.n)
		if !m.there {
			*m = model{there: true}
		}
		m.become(image)
		m.replicas = int32(c.n + 1) // a deploy that does not name the pause keeps it
	case "scale":
		m.replicas = int32(c.n)
	case "rollback":
		if len(m.history) > 1 {
			m.become(m.history[len(m.history)-2])
		}
	case "pause", "resume":
		m.paused = c.verb == "pause"
	case "delete":
		*m = model{}
	}
}

func (m *model) become(image string) {
	m.image = image
	if n := len(m.history); n == 0 || m.history[n-1] != image {
		m.history = append(m.history, image)
	}
}

func carryOut(t *testing.T, e *app.Engine, k runnerapi.Key, c command) error {
	t.Helper()
	ctx := t.Context()
	var err error
	switch c.verb {
	case "deploy":
		spec := image(fmt.Sprint(c.n))
		spec.Replicas = new(int32(c.n + 1))
		_, err = e.Deploy(ctx, k, spec, byTest)
	case "scale":
		_, err = e.Scale(ctx, k, runnerapi.Scale{Replicas: new(int32(c.n))}, byTest)
	case "rollback":
		_, err = e.Rollback(ctx, k, runnerapi.RollbackTo{}, byTest)
	case "pause":
		_, err = e.Pause(ctx, k, byTest)
	case "resume":
		_, err = e.Resume(ctx, k, byTest)
	case "delete":
		err = e.Delete(ctx, k, byTest)
	}
	return err
}

// TestCommands_LastOneWins sends commands as fast as they are taken,
// without waiting for what becomes of any.
func TestCommands_LastOneWins(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	run := 0
	property := func(all commands) bool {
		run++
		k := key(ns, fmt.Sprintf("any-%d", run))
		m := &model{}
		for i, c := range all {
			err := carryOut(t, e, k, c)
			switch {
			case !m.there && c.verb != "deploy":
				require.Equal(t, runnerapi.CodeNotFound, code(err), "%v at %d", all, i)
				continue
			case c.verb == "rollback" && len(m.history) < 2:
				require.Equal(t, runnerapi.CodeConflict, code(err), "%v at %d", all, i)
				continue
			}
			require.NoError(t, err, "%v at %d", all, i)
			m.apply(c)
		}
		if m.paused {
			require.NoError(t, carryOut(t, e, k, command{verb: "resume"}))
		}
		eventually(t, fmt.Sprintf("%v comes to %+v", all, *m), func() bool { return m.holds(t, env, k) })
		if m.there {
			var images []string
			for _, r := range revisions(t, e, k) {
				images = append([]string{r.Image}, images...)
			}
			assert.Equal(t, m.history[max(len(m.history)-runnerapi.DefaultRevisionHistory, 0):], images, "%v", all)
		}
		return !t.Failed()
	}
	const seed = 20260102
	orders := 6
	if suite.IsRelease() {
		orders = 25
	}
	err := quick.Check(property, &quick.Config{MaxCount: orders, Rand: rand.New(rand.NewSource(seed))})
	require.NoError(t, err)
}

func (m *model) holds(t *testing.T, env *kubetest.Env, k runnerapi.Key) bool {
	t.Helper()
	a, d := &v1alpha1.App{}, &appsv1.Deployment{}
	there, made := exists(t, env, k, a), exists(t, env, k, d)
	if !m.there {
		return !there && !made
	}
	return there && made && a.Spec.Image == m.image && ptr.Deref(a.Spec.Replicas, 1) == m.replicas && *d.Spec.Replicas == m.replicas &&
		d.Spec.Template.Spec.Containers[0].Image == m.image && a.Status.ObservedGeneration == a.Generation
}

// asInTheAgent returns an Engine that learns of changed contents from the real client.
func asInTheAgent(t *testing.T, env *kubetest.Env, ns string, sizing sizing.Timing) (*app.Engine, *kube.Client) {
	t.Helper()
	k := contentsOf(t, env, ns)
	config := limitedTo(env, ns)
	config.Contents, config.Sizing = k.Contents(), sizing
	e, _ := startWith(t, config)
	return e, k
}

// contentsOf returns the Kubernetes client of the agent that manages a namespace.
func contentsOf(t *testing.T, env *kubetest.Env, ns string) *kube.Client {
	t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentOf(ns), Namespaces: []string{ns}, Log: log})
	require.NoError(t, err)
	return k
}

// TestRestartOn_NoticesForeignWrites is of an agent that died between the write and the restart.
// The same agent notices what was written past it after a minute.
func TestRestartOn_NoticesForeignWrites(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "theirs"}, Data: map[string]string{"a": "1"}}
	require.NoError(t, env.Client.Create(t.Context(), settings))
	web := key(ns, "web")
	config := limitedTo(env, ns)
	config.Contents = contentsOf(t, env, ns).Contents()
	e, stop := startWith(t, config)
	deploy(t, e, web, runnerapi.AppSpec{
		Image: "example.com/web:1", EnvFrom: []runnerapi.EnvSource{{ConfigMap: "theirs"}},
		RestartOn: []runnerapi.RestartTrigger{runnerapi.RestartOnConfigMaps},
	})
	eventually(t, "the deployment is there", func() bool { return exists(t, env, web, &appsv1.Deployment{}) })
	stop()
	settings.Data["a"] = "2"
	require.NoError(t, env.Client.Update(context.Background(), settings))
	startWith(t, config)
	eventually(t, "the next agent restarts it", func() bool { return get(t, env, web, &appsv1.Deployment{}).Generation == 2 })
}
