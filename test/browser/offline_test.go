package browser_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/web/dashboard"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/browser"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// machine is an agent as a service, with its own control plane behind a real tunnel.
type machine struct {
	plane  *planetest.Plane
	health string // the agent's port
	run    func() // starts the agent
	stop   func() // ends it
}

func newMachine(t *testing.T, env *kubetest.Env) *machine {
	t.Helper()
	managed := env.Namespace(t)
	m := &machine{plane: planetest.Start(t), health: freeport.Address(t)}
	cfg := config.Config{
		ControlPlaneURL: m.plane.URL(), Token: m.plane.Token(t, administration.TokenOptions{TTL: time.Hour}), ClusterName: "shop",
		StateDir: t.TempDir(), Namespace: kubetest.AgentOf(managed), Namespaces: []string{managed}, HealthAddress: m.health,
	}
	m.run = func() {
		a, err := agent.New(agent.Options{Config: cfg, Version: "v1.2.3", Log: zerolog.Nop(), Kubernetes: env.Agent, Now: m.plane.Clock.Now})
		require.NoError(t, err)
		m.stop = await.Background(t, "the agent", a.Run)
	}
	m.run()
	m.plane.AwaitOnline(t, time.Time{})
	return m
}

// readiness asks the agent as the command does.
func (m *machine) readiness(ctx context.Context) (dashboard.Readiness, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.health+"/readyz", nil)
	if err != nil {
		return dashboard.Readiness{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return dashboard.Readiness{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return dashboard.Readiness{}, err
	}
	return dashboard.DecodeReadiness(body)
}

// shows waits until the open page shows, or no longer shows, a text, without being loaded again.
func shows(t *testing.T, b *browser.Browser, what string, want bool) {
	t.Helper()
	await.Until(t, fmt.Sprintf("the page shows %q: %v", what, want), func() bool { return strings.Contains(b.Text(), what) == want })
	assert.True(t, browser.Get(b, chromedp.Evaluate[bool](`window.stays === true`)), "the page was not loaded again")
}

// offline has the agent, the control plane and the network to the cluster go away and come back
// while a page is open.
func (s *scene) offline(t *testing.T, b *browser.Browser) {
	t.Helper()
	b.Visit(s.site+"/", "h1")
	browser.Get(b, chromedp.Evaluate[bool](`window.stays = true`))
	shows(t, b, "Runners reach this cluster", true)

	s.machine.plane.Stop()
	shows(t, b, "Runners do not reach this cluster", true)
	shows(t, b, "Control plane down", true)
	assert.Contains(t, b.Text(), "The tunnel is down")
	assert.Regexp(t, `Control plane: [^\n]+, since 20\d\d-`, b.Text())
	assert.Regexp(t, `Tunnel: [^\n]+, since 20\d\d-`, b.Text())
	b.Accessible("control plane away")
	b.Picture("control-plane-away")

	s.machine.stop()
	shows(t, b, "The agent does not respond", true)
	assert.Regexp(t, `it does not respond, since 20\d\d-`, b.Text())
	s.app(t, "while-away", func(st *v1alpha1.Status) {
		st.Phase, st.Diagnosis = runnerapi.PhaseFailed, &runnerapi.Diagnosis{Cause: runnerapi.CauseCrashLoop, Message: "it ends"}
	})
	shows(t, b, "production/while-away", true)
	b.Picture("agent-away")

	s.network.Set(faultproxy.Condition{Cut: true})
	shows(t, b, "The Kubernetes API cannot be reached", true)
	assert.Regexp(t, `Since 20\d\d-[^\n]+ The page shows the state of then, and continues by itself`, b.Text())
	assert.Contains(t, b.Text(), "production/while-away", "what was read stays")
	b.Accessible("cluster away")
	b.Fits("cluster away")
	b.Picture("cluster-away")

	b.Visit(s.site+"/nodes", "h1")
	assert.Contains(t, b.Text(), "The Kubernetes API cannot be reached", "a page that cannot be loaded says so")
	b.Picture("cluster-away-nodes")
	s.network.Set(faultproxy.Condition{})
	b.Await("div.table") // that page comes back by itself
	s.network.Set(faultproxy.Condition{Cut: true})
	browser.Get(b, chromedp.Evaluate[bool](`window.stays = true`))
	shows(t, b, "The Kubernetes API cannot be reached", true)
	s.network.Set(faultproxy.Condition{})
	shows(t, b, "The Kubernetes API cannot be reached", false)
	b.Visit(s.site+"/", "h1")
	browser.Get(b, chromedp.Evaluate[bool](`window.stays = true`))
	s.machine.plane.Restart(t)
	s.machine.run()
	shows(t, b, "Runners reach this cluster", true)
	shows(t, b, "The agent does not respond", false)
}

// measure gives the cluster a Prometheus.
func (s *scene) measure(t *testing.T) {
	t.Helper()
	f := monitoringtest.Start(t)
	f.Answer(monitoringtest.QueryRange, func(q url.Values) any {
		labels := map[string]string{"namespace": "production"}
		switch query := q.Get("query"); {
		case !strings.Contains(query, "web-"):
			return monitoringtest.Matrix()
		case strings.Contains(query, "cpu_usage"):
			return monitoringtest.Matrix(wave(q, labels, 0.4))
		case strings.Contains(query, "working_set_bytes") && !strings.Contains(query, "rate("):
			return monitoringtest.Matrix(wave(q, labels, 300<<20))
		}
		return monitoringtest.Matrix()
	})
	s.prometheus.Store(&f.URL)
	named := metav1.ObjectMeta{Namespace: "monitoring", Name: "prometheus", Labels: map[string]string{"app.kubernetes.io/name": "prometheus"}}
	require.NoError(t, s.env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: named.Namespace}}))
	require.NoError(t, s.env.Client.Create(t.Context(), &corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}))
}

// proxied is the transport of the dashboard. It does what the API server's proxy does with requests
// to Prometheus, and answers for the kubelet and metrics-server: no pod runs in this cluster.
func (s *scene) proxied(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		_, path, found := strings.Cut(r.URL.Path, "/api/v1/namespaces/monitoring/services/http:prometheus:80/proxy")
		if answer := s.answers(r); answer != nil {
			return answer, nil
		}
		if !found {
			return next.RoundTrip(r)
		}
		to, err := http.NewRequestWithContext(r.Context(), r.Method, *s.prometheus.Load()+path+"?"+r.URL.RawQuery, nil)
		if err != nil {
			return nil, err
		}
		return http.DefaultTransport.RoundTrip(to)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wave is a series that goes up and down, with a gap.
func wave(q url.Values, labels map[string]string, most float64) monitoringtest.Object {
	series := monitoringtest.Series(q, "0", labels)
	values := series["values"].([][]any)
	for i := range values {
		values[i][1] = strconv.FormatFloat(most*(0.35+float64((i*i)%23)/40), 'f', 4, 64)
	}
	gap := len(values) / 2
	series["values"] = append(values[:gap:gap], values[min(gap+4, len(values)):]...)
	return series
}
