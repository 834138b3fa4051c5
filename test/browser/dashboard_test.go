package browser_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/web/dashboard"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/browser"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, kubetest.OwnClusters)) }

// scene is a dashboard on a real API server, with an agent that is limited to a namespace of its
// own.
type scene struct {
	env     *kubetest.Env
	machine *machine
	network *faultproxy.Proxy // between the dashboard and the cluster
	// prometheus is the address of what the API server's proxy would reach.
	prometheus atomic.Pointer[string]
	site       string // the dashboard's address
	link       string // signs one browser in
	end        func() // ends the dashboard
	log        audit.Files
	written    chan string // lines that the pod of App web writes
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{env: kubetest.ControlPlane(t), log: audit.Files{Dir: t.TempDir()}, written: make(chan string)}
	s.machine = newMachine(t, s.env)
	server, err := url.Parse(s.env.Admin.Host)
	require.NoError(t, err)
	s.network = faultproxy.New(t, server.Host)
	admin := rest.CopyConfig(s.env.Admin)
	admin.Host, admin.ServerName = "https://"+s.network.Addr(), server.Hostname()
	admin.Wrap(s.proxied)
	d, err := dashboard.New(dashboard.Options{
		Kubernetes: admin, Readiness: s.machine.readiness, Namespace: kubetest.AgentNamespace, Place: "test", Version: "v1.2.3",
		Log: zerolog.New(zerolog.NewTestWriter(t)), Now: time.Now, Audit: s.log,
		Doctor: func(context.Context) (doctor.Report, error) {
			return doctor.Report{Time: time.Now(), Findings: []doctor.Finding{
				{Check: "clock", Status: doctor.OK, Detail: "0.2 s off"}, {Check: "proxy", Status: doctor.Skipped, Detail: "none is set"},
				{Check: "tunnel", Status: doctor.Failed, Detail: "cp.example.com:7000 does not accept connections", Fix: "open the port in the firewall"},
				{Check: "disk", Status: doctor.Warning, Detail: "9% is free", Fix: "make room"},
			}}, nil
		},
		Bundle: func(_ context.Context, file string, _ doctor.Report) error {
			return os.WriteFile(file, []byte("bundle"), 0o600)
		},
		Components: func(context.Context) ([]components.Status, error) {
			return []components.Status{
				{Component: "ingress", What: "requests from outside reach Apps", Present: "IngressClass traefik"}, {Component: "loki", What: "logs of pods that are gone"},
				{Component: "prometheus", What: "metrics and alerts", Releases: []components.ReleaseStatus{{Namespace: "monitoring", Name: "prometheus", Status: components.Deployed, Version: "27.1.0", Newest: "27.3.0"}},
					State: &components.State{Workload: "monitoring/prometheus-server", Message: "0 of 1 pods are ready", Fix: "kubectl -n monitoring describe pod"}},
			}, nil
		},
		Updates: func(context.Context) (update.Record, error) {
			return update.Record{State: "failed", From: "v1.2.2", To: "v1.2.3", Reason: "the new pods did not become ready"}, nil
		},
	})
	require.NoError(t, err)
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.site = "http://" + ln.Addr().String()
	links := make(chan string, 1)
	s.end = await.Background(t, "the dashboard", func(ctx context.Context) error {
		return d.Serve(ctx, ln, func(link string) { links <- link })
	})
	s.link = await.Receive(t, links, "the dashboard's link")
	return s
}

// long is a name as long as an App's can be.
var long = strings.Repeat("very-long-", 5) + "name"

// fill puts Apps in each state into the cluster, and records into the audit log.
func (s *scene) fill(t *testing.T) {
	t.Helper()
	s.app(t, "web", func(st *v1alpha1.Status) {
		st.Phase, st.Restarts, st.DesiredReplicas = runnerapi.PhaseFailed, 14, 3
		st.LastTransition = new(time.Now().Add(time.Minute)) // after the other Apps are made
		st.Diagnosis = &runnerapi.Diagnosis{
			Cause: runnerapi.CauseCrashLoop, Message: "container web of pod web-7d9c8b6f4-x2x9p ends with exit code 1 soon after its start",
			Fix: "correct what its last lines complain about, then deploy again", Object: "pod/web-7d9c8b6f4-x2x9p", Container: "web", ExitCode: new(int32(1)),
			LastLines: []string{"listening on :8080", "cannot connect to postgres://db:5432: connection refused", "panic: no database"},
		}
	})
	s.app(t, "api", func(st *v1alpha1.Status) {
		st.Phase, st.ReadyReplicas, st.DesiredReplicas, st.Healthy = runnerapi.PhaseHealthy, 2, 2, []int64{1}
		st.PublicURLs = []string{"https://api.example.com/"}
	})
	s.app(t, long, func(st *v1alpha1.Status) {
		st.Phase, st.DesiredReplicas, st.WaitingFor = runnerapi.PhaseProgressing, 1, "pod "+long+"-5c9 to pull its image"
	})
	for i := range 60 {
		s.app(t, fmt.Sprintf("service-%02d", i), func(st *v1alpha1.Status) {
			st.Phase, st.ReadyReplicas, st.DesiredReplicas = runnerapi.PhaseHealthy, 1, 1
		})
	}
	s.nodes(t)
	l := audit.New(s.log, "pipeops-agent-0", zerolog.Nop())
	for i := range 130 {
		r := runnerapi.AuditRecord{Time: time.Now(), Runner: "ci", Command: "put-app", Namespace: "production", Name: "web", Outcome: runnerapi.AuditDone}
		if i%3 == 0 {
			r.Runner, r.Command, r.Outcome, r.Code, r.Message = "support-team-with-a-long-name", "exec", runnerapi.AuditRefused, "policy_denied", `rule "support reads" of ConfigMap pipeops/pipeops-policy denies exec`
		}
		l.Record(r)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop() // what was recorded is written at the end
	if err := l.Run(ctx); !errors.Is(err, context.Canceled) {
		require.NoError(t, err)
	}
	require.NoError(t, s.env.Client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.AgentNamespace, Name: "pipeops-policy"},
		Data:       map[string]string{"policy.yaml": "rules:\n  - name: ci deploys\n    runners: [ci]\n    namespaces: [production]\n  - name: support reads\n    runners: [\"support-*\"]\n    commands: [read]\n"},
	}))
}

// nodes puts a node that is ready and one that is not into the cluster.
func (s *scene) nodes(t *testing.T) {
	t.Helper()
	for name, ready := range map[string]corev1.ConditionStatus{"node-1": corev1.ConditionTrue, "a-node-with-a-long-name.frankfurt.internal.example.com": corev1.ConditionFalse} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
		require.NoError(t, s.env.Client.Create(t.Context(), node))
		room := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}
		node.Status = corev1.NodeStatus{
			Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3+k3s1", OperatingSystem: "linux", Architecture: "amd64"},
		}
		require.NoError(t, s.env.Client.Status().Update(t.Context(), node))
	}
}

func (s *scene) app(t *testing.T, name string, status func(*v1alpha1.Status)) {
	t.Helper()
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: name}}
	a.Spec.Image, a.Spec.Replicas = "registry.example.com/shop/"+name+":1.4.2", new(int32(1))
	if name == "api" || name == "web" {
		a.Spec.Ingress = &runnerapi.Ingress{Hosts: []runnerapi.IngressHost{{Host: name + ".example.com"}}}
		a.Spec.Ports = []runnerapi.Port{{Port: 8080}}
	}
	require.NoError(t, s.env.Client.Create(t.Context(), a))
	a.Status.ObservedGeneration, a.Status.Revision = a.Generation, a.Generation
	status(&a.Status)
	require.NoError(t, s.env.Client.Status().Update(t.Context(), a))
}

// TestDashboard_InBrowser looks at each page, wide and on a phone, light and dark.
func TestDashboard_InBrowser(t *testing.T) {
	suite.Release(t, "the dashboard in a real Chromium")
	b := browser.Open(t)
	s := newScene(t)

	b.Visit(s.site+"/", "h1")
	assert.Contains(t, b.Text(), "You are not signed in")
	b.Accessible("signed out")
	b.Picture("signed-out")
	b.Visit(s.link, "nav.side")
	assert.Equal(t, s.site+"/", browser.Get(b, chromedp.Location()), "the address no longer contains the token")

	pages := map[string]string{
		"overview": "/", "apps": "/apps", "routes": "/routes", "nodes": "/nodes", "policy": "/policy", "audit": "/audit",
		"components": "/components", "updates": "/updates", "doctor": "/doctor",
	}
	s.look(t, b, "empty-", map[string]string{"overview": "/", "apps": "/apps", "audit": "/audit", "routes": "/routes"}, "wide")
	s.follow(t, b, "fresh")
	s.fill(t)
	s.inside(t)
	s.look(t, b, "", map[string]string{"app-sampled": "/apps/production/api"}, "wide")
	assert.Contains(t, b.Text(), "From metrics-server")
	s.measure(t)
	maps.Copy(pages, map[string]string{
		"app": "/apps/production/web", "app-long": "/apps/production/" + long, "logs": "/apps/production/web/logs", "scale": "/apps/production/web/scale",
		"restart": "/apps/production/web/restart", "pause": "/policy/pause", "missing": "/apps/production/nowhere",
	})
	b.Visit(s.site+"/apps/production/web", "figure.chart svg")
	assert.Equal(t, 2, browser.Get(b, chromedp.Evaluate[int](`document.querySelectorAll("figure.chart").length`)), "CPU and memory")
	s.look(t, b, "", pages, "wide", "phone")
	s.explore(t, b)
	s.offline(t, b)
	s.change(t, b)
}

// TestDashboard_Ends has the program end while a page is open.
func TestDashboard_Ends(t *testing.T) {
	suite.Release(t, "the dashboard in a real Chromium, without its program")
	b := browser.Open(t)
	s := newScene(t)
	b.Visit(s.link, "nav.side")
	s.follow(t, b, "latest") // the page has its stream
	b.Lose(func() {
		s.end()
		await.Until(t, "the page says so", func() bool {
			return strings.Contains(b.Text(), "The server of this page has not responded since")
		})
		assert.Contains(t, b.Text(), "start it again with pipeops-agent dashboard")
		b.Do(chromedp.Navigate("about:blank"))
	})
}

// look examines and pictures pages.
func (s *scene) look(t *testing.T, b *browser.Browser, prefix string, pages map[string]string, screens ...string) {
	t.Helper()
	for _, screen := range screens {
		b.Resize(browser.Screens[screen][0], browser.Screens[screen][1])
		for name, path := range pages {
			for _, dark := range []bool{true, false} {
				if dark && screen == "phone" {
					continue // the colors are those of the wide screen
				}
				b.Dark(dark)
				as := fmt.Sprintf("%s%s-%s-%v", prefix, name, screen, map[bool]string{false: "light", true: "dark"}[dark])
				b.Visit(s.site+path, "h1")
				if name == "doctor" {
					b.Follow("main button.primary")
				}
				b.Accessible(as)
				b.Fits(as)
				b.StaysAt(strings.TrimSuffix(s.site, operatorapi.ConsolePath))
				b.Picture(as)
			}
		}
	}
}

// follow has an open page show an App that comes, without being loaded again.
func (s *scene) follow(t *testing.T, b *browser.Browser, app string) {
	t.Helper()
	b.Visit(s.site+"/apps", "h1")
	browser.Get(b, chromedp.Evaluate[bool](`window.stays = true`))
	s.app(t, app, func(st *v1alpha1.Status) {
		st.Phase, st.ReadyReplicas, st.DesiredReplicas = runnerapi.PhaseHealthy, 1, 1
	})
	await.Until(t, "the page shows the new App", func() bool { return strings.Contains(b.Text(), app) })
	assert.True(t, browser.Get(b, chromedp.Evaluate[bool](`window.stays === true`)), "the page was not loaded again")
}

// change scales and restarts an App with the keyboard and the mouse, and uses the switch.
func (s *scene) change(t *testing.T, b *browser.Browser) {
	t.Helper()
	b.Resize(browser.Screens["wide"][0], browser.Screens["wide"][1])
	b.Visit(s.site+"/apps/production/api", "h1")
	b.Follow(`//a[text()="Scale"]`)
	b.Fill("#replicas", "4")
	b.Enter("#replicas")
	b.Await(".notice")
	a := &v1alpha1.App{}
	require.NoError(t, s.env.Client.Get(t.Context(), client.ObjectKey{Namespace: "production", Name: "api"}, a))
	assert.EqualValues(t, 4, a.Replicas())
	b.Follow(`//a[text()="Restart"]`)
	b.Follow(`//button[text()="Restart"]`)
	require.NoError(t, s.env.Client.Get(t.Context(), client.ObjectKey{Namespace: "production", Name: "api"}, a))
	assert.NotEmpty(t, a.Annotations[objectmeta.RestartedAt])
	b.Visit(s.site+"/policy", "h1")
	b.Follow(`//a[text()="Stop all commands"]`)
	b.Follow(`//button[text()="Stop all commands"]`)
	b.Picture("paused")
	b.Accessible("paused")
	b.Follow(`//button[text()="Sign out"]`)
	b.Visit(s.site+"/apps", "h1")
	assert.NotContains(t, b.Text(), "production", "a tab that has signed out shows nothing")
}
