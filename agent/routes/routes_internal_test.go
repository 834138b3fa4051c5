package routes

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestRouteOf_SuspendedReason returns the first reason that applies.
func TestRouteOf_SuspendedReason(t *testing.T) {
	served := controlapi.HostStatus{Host: "a", Served: true, Proof: "given", Certificate: controlapi.CertificateReady}
	with := func(hosts ...controlapi.HostStatus) controlapi.RoutesState {
		return controlapi.RoutesState{Gateway: "apps.example.com", Hosts: hosts}
	}
	for _, c := range []struct {
		ready  bool
		to     access
		state  controlapi.RoutesState
		err    error
		want   runnerapi.RouteState
		reason string
	}{
		{true, access{}, with(served), nil, runnerapi.RouteServing, ""},
		{false, access{}, with(served), nil, runnerapi.RouteSuspended, "no pod is ready"},
		{true, access{}, with(controlapi.HostStatus{Host: "a", Reason: "set a CNAME"}), nil, runnerapi.RouteSuspended, "set a CNAME"},
		{true, access{}, with(), nil, runnerapi.RouteSuspended, "the control plane has not heard of the host yet"},
		{true, access{}, controlapi.RoutesState{}, nil, runnerapi.RouteSuspended, "the control plane has no gateway"},
		{true, access{}, controlapi.RoutesState{}, errors.New("away"), runnerapi.RouteSuspended, "the control plane cannot be asked whether it serves the host"},
		{true, access{off: "kept out"}, with(served), nil, runnerapi.RouteSuspended, "kept out"},
	} {
		r := ingress.Route{Host: "a", Path: "/", Port: 80, Ready: c.ready}
		if !c.ready {
			r.Reason = "no pod is ready"
		}
		got := routeOf(r, c.to, c.state, c.err)
		assert.Equal(t, []string{string(c.want), c.reason}, []string{string(got.State), got.Reason})
		assert.Equal(t, "https://a/", got.URL)
		assert.Equal(t, runnerapi.RouteTunnel, got.Mode)
	}
	served.Mode = controlapi.ModeDirect
	assert.Equal(t, runnerapi.RouteDirect, routeOf(ingress.Route{Host: "a", Path: "/", Ready: true}, access{}, with(served), nil).Mode)
	served.Mode, served.ModeReason = controlapi.ModeTunnel, "the endpoint does not answer"
	got := routeOf(ingress.Route{Host: "a", Path: "/", Ready: true}, access{}, with(served), nil)
	assert.Equal(t, []string{"tunnel", "the endpoint does not answer"}, []string{string(got.Mode), got.ModeReason})
}

// TestPublicOf_HostWithoutCertificate: the host is not served, and the agent soon asks again.
func TestPublicOf_HostWithoutCertificate(t *testing.T) {
	host := controlapi.HostStatus{Host: "a", Served: true, Proof: "given", Certificate: controlapi.CertificateFailed, Reason: "the CA refuses"}
	state := controlapi.RoutesState{Digest: "d", Gateway: "apps.example.com", Hosts: []controlapi.HostStatus{host}}
	assert.Equal(t, ingress.PublicHost{Given: true, Reason: "the CA refuses"}, publicOf(access{}, state).Hosts["a"])
	known := knownRoutes{RoutesState: state, due: sentAtLeast, sent: time.Now()}
	assert.LessOrEqual(t, known.next(), hostsSoon)
	state.Hosts[0].Certificate, state.Hosts[0].Reason = controlapi.CertificatePending, ""
	assert.True(t, publicOf(access{}, state).Hosts["a"].Pending)
	state.Hosts[0].Certificate, state.Hosts[0].Reason = controlapi.CertificateReady, "no pod listens"
	assert.Equal(t, ingress.PublicHost{Given: true, Reason: "no pod listens"}, publicOf(access{}, state).Hosts["a"])
	state.Hosts[0].Reach, state.Hosts[0].Reason = controlapi.ReachReady, ""
	assert.Equal(t, ingress.PublicHost{Served: true, Given: true}, publicOf(access{}, state).Hosts["a"])
	known = knownRoutes{RoutesState: state, due: sentAtLeast, sent: time.Now()}
	assert.Greater(t, known.next(), hostsAgain)
}

// TestKnownRoutes_AsksInTime: changes of pods in between do not put off when hosts are asked for.
func TestKnownRoutes_AsksInTime(t *testing.T) {
	state := controlapi.RoutesState{Digest: "d", Gateway: "apps.example.com", Hosts: []controlapi.HostStatus{{Host: "a"}}}
	known := knownRoutes{RoutesState: state, sent: time.Now(), due: sentAtLeast, asked: time.Now(), again: hostsSoon}
	for range 5 {
		assert.LessOrEqual(t, known.next(), hostsSoon)
	}
	known.asked = time.Now().Add(-hostsAgain)
	assert.Zero(t, known.next(), "it is due")
	for range 10 { // of a replica that does not lead, and asks nothing
		known.putOff()
		assert.GreaterOrEqual(t, known.next(), hostsSoon/2)
	}
	assert.Equal(t, hostsAgain, known.again)
}

// TestRouteOf_UnsupportedRoute has its reason even if the host is not known.
func TestRouteOf_UnsupportedRoute(t *testing.T) {
	r := ingress.Route{Host: "a", Path: "/", Reason: "HTTPRoute site is not served"}
	got := routeOf(r, access{}, controlapi.RoutesState{Gateway: "apps.example.com"}, nil)
	assert.Equal(t, []string{"suspended", r.Reason}, []string{string(got.State), got.Reason})
}

func manyRoutes(n, pathLength int) []ingress.Route {
	routes := make([]ingress.Route, n)
	for i := range routes {
		routes[i] = ingress.Route{App: runnerapi.Key{Namespace: "n", Name: "a"}, Host: "shop.example.com", PathType: "Prefix", Service: "web", Port: 80,
			Path: fmt.Sprintf("/%05d%s", i, strings.Repeat("p", pathLength))}
	}
	return routes
}

func TestBounded(t *testing.T) {
	for _, c := range []struct{ routes, pathLength int }{{0, 0}, {controlapi.MaxRoutes, 10}, {controlapi.MaxRoutes + 7, 10}, {controlapi.MaxRoutes, 1018}} {
		req, omitted, err := bounded(manyRoutes(c.routes, c.pathLength))
		require.NoError(t, err)
		assert.Equal(t, c.routes, len(req.Routes)+req.Omitted, "what is left out is counted")
		assert.Len(t, omitted, req.Omitted)
		assert.LessOrEqual(t, len(req.Routes), controlapi.MaxRoutes)
		text, err := json.Marshal(req)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(text), controlapi.MaxRoutesBytes+100)
		if c.pathLength > 1000 {
			assert.Greater(t, len(text), controlapi.MaxRoutesBytes-2000, "as many as fit")
		}
	}
}

// TestBounded_LeavesOutUnfit: the control plane would refuse the whole list for one route, so that
// the routes of all would stay as they are.
func TestBounded_LeavesOutUnfit(t *testing.T) {
	routes := manyRoutes(3, 0)
	routes[0].Path = "/" + strings.Repeat("p", 1024)
	routes[1].Host = "*." + strings.Repeat("a.", 126) + "b"
	req, omitted, err := bounded(routes)
	require.NoError(t, err)
	require.Len(t, req.Routes, 1)
	assert.Equal(t, routes[2].Path, req.Routes[0].Path)
	assert.Equal(t, 2, req.Omitted)
	require.Len(t, omitted, 2)
	assert.Equal(t, []string{unfitReason, unfitReason}, []string{omitted[0].Reason, omitted[1].Reason})
}

// TestBounded_MergesConditions: the control plane refuses a path of a Service that it has twice.
func TestBounded_MergesConditions(t *testing.T) {
	routes := append(manyRoutes(1, 0), manyRoutes(1, 0)...)
	routes[0].Ready, routes[1].Conditions, routes[1].Reason = true, gateway.Conditions{Method: "POST"}, "no pod is ready"
	pattern := ingress.Route{App: routes[0].App, Host: "a.b", Path: "(/a|/b)", PathType: "RegularExpression", Pattern: regexp.MustCompile("^(?:(/a|/b))$"), Service: "web", Port: 80}
	req, omitted, err := bounded(append(routes, pattern))
	require.NoError(t, err)
	assert.Empty(t, omitted)
	require.Len(t, req.Routes, 2)
	assert.False(t, req.Routes[0].Ready)
	assert.Equal(t, "no pod is ready", req.Routes[0].Reason)
	assert.Equal(t, []string{"/", "ImplementationSpecific"}, []string{req.Routes[1].Path, req.Routes[1].PathType})
	require.NoError(t, req.Routes[1].Fits())
	assert.Len(t, backendsOf(append(routes, pattern)), 3, "the agent tells them apart")
}

// TestBounded_KeepsPorts: public ports of an App are at one host and path, and each is told apart.
func TestBounded_KeepsPorts(t *testing.T) {
	var ports []ingress.Route
	for _, r := range []ingress.Route{{Protocol: "TCP", Port: 53}, {Protocol: "UDP", Port: 53}, {Protocol: "TCP", Port: 853}} {
		r.App, r.Host, r.Path, r.PathType, r.Service = manyRoutes(1, 0)[0].App, "a.b", "/", "Prefix", "dns"
		ports = append(ports, r)
	}
	req, omitted, err := bounded(append(ports, ports[0]))
	require.NoError(t, err)
	assert.Empty(t, omitted)
	require.Len(t, req.Routes, 3)
	assert.Equal(t, "UDP", req.Routes[1].Protocol)
}

// TestBounded_SharesByNamespace: a namespace with many routes pushes none of another out.
func TestBounded_SharesByNamespace(t *testing.T) {
	few := manyRoutes(3, 1000)
	for i := range few {
		few[i].App.Namespace = "z"
	}
	for _, pathLength := range []int{10, 1000} {
		req, omitted, err := bounded(append(manyRoutes(2*controlapi.MaxRoutes, pathLength), few...))
		require.NoError(t, err)
		sent := 0
		for _, r := range req.Routes {
			if r.Namespace == "z" {
				sent++
			}
		}
		assert.Equal(t, len(few), sent)
		for _, r := range omitted {
			assert.Equal(t, "n", r.App.Namespace)
		}
	}
}

// TestTimer_LooksAtSecrets: nothing reports that a Secret with users has changed, so each replica
// looks. The control plane is not asked for that.
func TestTimer_LooksAtSecrets(t *testing.T) {
	settled := knownRoutes{sent: time.Now(), due: sentAtLeast}
	settled.Gateway, settled.Digest = "apps.example.com", "d"
	after, ask := settled.timer()
	assert.Greater(t, after, time.Hour)
	assert.True(t, ask)
	settled.secrets = true
	after, ask = settled.timer()
	assert.Equal(t, secretsAgain, after)
	assert.False(t, ask)
	settled.Hosts = []controlapi.HostStatus{{Host: "a.example.com", Reach: controlapi.ReachPending}}
	after, ask = settled.timer()
	assert.LessOrEqual(t, after, 2*hostsAgain)
	assert.True(t, ask, "a host that is not settled comes first")
}
