package agent_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// site is a Service with an Ingress, as a chart makes them, and a pod on this machine.
type site struct {
	t       *testing.T
	ingress *networkingv1.Ingress
}

func newSite(t *testing.T, name, host string, backend http.Handler) *site {
	t.Helper()
	srv := httptest.NewServer(backend)
	t.Cleanup(srv.Close)
	at := srv.Listener.Addr().(*net.TCPAddr)
	labels := map[string]string{objectmeta.ManagedBy: objectmeta.ManagedByAgent, "app": name}
	meta := metav1.ObjectMeta{Namespace: "production", Name: name, Labels: labels}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}},
	}}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": name},
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt(at.Port)}},
	}}
	prefix := networkingv1.PathTypePrefix
	s := &site{t: t, ingress: &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
			Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: name, Port: networkingv1.ServiceBackendPort{Name: "http"},
			}},
		}}}},
	}}}}}
	c := kubetest.ControlPlane(t).Client
	for _, o := range []client.Object{pod, service, s.ingress} {
		require.NoError(t, c.Create(t.Context(), o))
		t.Cleanup(func() {
			assert.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), o)))
		})
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: at.IP.String(), PodIPs: []corev1.PodIP{{IP: at.IP.String()}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	require.NoError(t, c.Status().Update(t.Context(), pod))
	return s
}

// publicClient returns a client that reaches the gateway by any host's name.
func publicClient(t *testing.T, p *planetest.Plane) *http.Client {
	t.Helper()
	ca, err := p.Gateway.CA(t.Context())
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.Addrs().HTTPS.String())
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// awaitAnswer waits until a host answers with that status, and returns the body.
func awaitAnswer(t *testing.T, c *http.Client, host string, status int) (body string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s answers %d", host, status), func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := c.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if body = string(text); err == nil && resp.StatusCode != status {
			err = fmt.Errorf("it answered %d: %s", resp.StatusCode, body)
		}
		return err
	})
	return body
}

// TestGateway_ServesService goes through the gateway, the tunnel and the agent, over HTTPS.
func TestGateway_ServesService(t *testing.T) {
	p := planetest.Start(t, withGateway(t))
	first := run(t, p, t.TempDir(), token(t, p), routesOn)
	p.AwaitOnline(t, time.Time{})
	const host = "site.example.org"
	s := newSite(t, "site", host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s from %s", r.Host, r.Header.Get("X-Forwarded-For"))
	}))
	awaitRoutes(t, p, host)
	c := publicClient(t, p)
	_, err := c.Get("https://" + host)
	require.Error(t, err, "an unproven host is not served, and has no certificate")

	_, err = p.Gateway.Grant(t.Context(), host, name)
	require.NoError(t, err)
	began := time.Now()
	assert.Equal(t, host+" from 127.0.0.1", awaitAnswer(t, c, host, http.StatusOK))
	t.Logf("a granted host answered after %s", time.Since(began).Round(time.Millisecond))

	t.Run("another host of the same route", func(t *testing.T) {
		const other = "other.example.org"
		_, err := p.Gateway.Grant(t.Context(), other, name)
		require.NoError(t, err)
		s.ingress.Spec.Rules[0].Host = other
		require.NoError(t, kubetest.ControlPlane(t).Client.Update(t.Context(), s.ingress))
		awaitAnswer(t, c, other, http.StatusOK)
		awaitAnswer(t, c, host, http.StatusNotFound)
	})
	t.Run("only some visitors", func(t *testing.T) {
		const annotation = "nginx.ingress.kubernetes.io/whitelist-source-range"
		for networks, status := range map[string]int{"203.0.113.0/24": http.StatusForbidden, "203.0.113.0/24,127.0.0.0/8": http.StatusOK} {
			s.ingress.Annotations = map[string]string{annotation: networks}
			require.NoError(t, kubetest.ControlPlane(t).Client.Update(t.Context(), s.ingress))
			awaitAnswer(t, c, "other.example.org", status)
		}
	})
	t.Run("the agent is away", func(t *testing.T) {
		first.stop()
		assert.Contains(t, awaitAnswer(t, c, "other.example.org", http.StatusServiceUnavailable), "not connected")
	})
}

// TestGateway_PolicyDenies an App with a host below the gateway's domain, and allows it again,
// without a restart.
func TestGateway_PolicyDenies(t *testing.T) {
	p := planetest.Start(t, withGateway(t))
	file := filepath.Join(t.TempDir(), "policy.yaml")
	policy := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	policy("{}")
	run(t, p, t.TempDir(), token(t, p), routesOn, func(c *config.Config) { c.PolicyFile = file })
	id := p.AwaitOnline(t, time.Time{})
	env := kubetest.ControlPlane(t)
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: "open"}}
	a.Spec = runnerapi.AppSpec{Image: "example.com/web:1", Ports: []runnerapi.Port{{Port: 8080}}, Ingress: &runnerapi.Ingress{Public: true}}
	require.NoError(t, env.Client.Create(t.Context(), a))
	t.Cleanup(func() { removeApp(t, a) })
	host := controlapi.GivenHost("open", "production", id, gatewayDomain)
	status := func(reason string) {
		t.Helper()
		eventually(t, "the App's status: "+reason, func(ctx context.Context) error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
				return err
			}
			if ingressReady(a).Reason != reason || len(a.Status.PublicURLs) > 0 {
				return fmt.Errorf("conditions %+v, URLs %v", a.Status.Conditions, a.Status.PublicURLs)
			}
			return nil
		})
	}
	assert.Equal(t, "given", awaitRoutes(t, p, host)[0].Proof)
	status(runnerapi.ReasonHostNotServed) // no pod answers
	policy("public: false")
	awaitRoutes(t, p)
	status(runnerapi.ReasonNotPublic)
	policy("public: maybe")
	policy("public: true")
	awaitRoutes(t, p, host)
	status(runnerapi.ReasonHostNotServed) // no pod answers
}

// ingressReady returns the App's condition of that type; none is the zero value.
func ingressReady(a *v1alpha1.App) (found runnerapi.Condition) {
	for _, c := range a.Status.Conditions {
		if c.Type == runnerapi.ConditionIngressReady {
			found = c
		}
	}
	return found
}
