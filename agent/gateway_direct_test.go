package agent_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// ingressController stands in for one: it passes HTTPS with its own certificate on to a pod,
// and marks what comes this way.
func ingressController(t *testing.T, pod string) (balancer *faultproxy.Proxy) {
	t.Helper()
	srv := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", pod, r.In.Host
		r.Out.Header.Set("Way", "direct")
	}})
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return faultproxy.New(t, srv.Listener.Addr().String())
}

// TestGateway_DirectMode reaches a host over an Ingress with its address, until that is cut off,
// and again once it is back.
func TestGateway_DirectMode(t *testing.T) {
	const host = "direct.example.org"
	way := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s by %q", r.Host, r.Header.Get("Way"))
	})
	behind := httptest.NewServer(way)
	t.Cleanup(behind.Close)
	balancer := ingressController(t, behind.Listener.Addr().String())
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

	public := withGateway(t)
	p := planetest.Start(t, func(c *controlplane.Config) {
		public(c)
		c.Gateway.DirectAllow, c.Gateway.DirectPort = loopback, balancer.Port()
	})
	opts := optionsOf(t, p, t.TempDir(), token(t, p), routesOn, func(c *config.Config) { c.DirectAddresses = loopback })
	opts.DirectPort = balancer.Port()
	launch(t, opts)
	p.AwaitOnline(t, time.Time{})
	s := newSite(t, "direct", host, way)
	_, err := p.Gateway.Grant(t.Context(), host, name)
	require.NoError(t, err)
	c := publicClient(t, p)
	awaitBody(t, c, host, host+` by ""`)

	kube := kubetest.ControlPlane(t).Client
	s.ingress.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}}}
	require.NoError(t, kube.Update(t.Context(), s.ingress))
	s.ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "127.0.0.1"}}
	require.NoError(t, kube.Status().Update(t.Context(), s.ingress))
	awaitBody(t, c, host, host+` by "direct"`)
	awaitMode(t, p, host, "direct")

	balancer.Set(faultproxy.Condition{Cut: true})
	require.Equal(t, host+` by ""`, awaitAnswer(t, c, host, http.StatusOK), "the first request after the cut succeeds too")
	awaitMode(t, p, host, "tunnel")
	balancer.Set(faultproxy.Condition{})
	awaitBody(t, c, host, host+` by "direct"`)
	awaitMode(t, p, host, "direct")

	s.ingress.Annotations = map[string]string{"pipeops.io/gateway-mode": "tunnel"}
	require.NoError(t, kube.Update(t.Context(), s.ingress))
	awaitBody(t, c, host, host+` by ""`)
	awaitMode(t, p, host, "tunnel")
}

// awaitBody waits until a host answers so.
func awaitBody(t *testing.T, c *http.Client, host, want string) {
	t.Helper()
	eventually(t, host+" answers "+strconv.Quote(want), func(_ context.Context) error {
		if body := awaitAnswer(t, c, host, http.StatusOK); body != want {
			return fmt.Errorf("it answers %q", body)
		}
		return nil
	})
}

// awaitMode waits until the operator and Runners see a host's mode.
func awaitMode(t *testing.T, p *planetest.Plane, host, mode string) {
	t.Helper()
	eventually(t, host+" is in the mode "+mode, func(ctx context.Context) error {
		list, err := p.Gateway.Routes(ctx, "")
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			if r.Host == host && r.Mode == mode {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", list.Items)
	})
}
