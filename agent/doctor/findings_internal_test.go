package doctor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// TestFailure_PrintsFixOnce: the tunnel's error holds the websocket's, with its own fix.
func TestFailure_PrintsFixOnce(t *testing.T) {
	both := func(action string) error {
		websocket := &tunnel.Error{Op: "connect to", Where: "https://cp.example.com", Err: errors.New("refused"), Action: action}
		return &tunnel.Error{
			Op: "connect to", Where: "cp.example.com:7000", Action: "check the firewall",
			Err: fmt.Errorf("refused; and over a websocket: %w", websocket),
		}
	}
	assert.Equal(t, failed("connect to cp.example.com:7000: refused; and over a websocket: tunnel: connect to https://cp.example.com: refused",
		"check the firewall"), failure(both("check the firewall"), "other"))
	assert.Contains(t, failure(both("ask the proxy's owner"), "other")[0].Detail, "refused; ask the proxy's owner", "another fix stays")
}

// TestUncarried names the field that the gateway does not support.
func TestUncarried(t *testing.T) {
	assert.Empty(t, uncarried(nil))
	route := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hostnames": []any{"a.example.com"}}}}
	route.SetNamespace("shop")
	route.SetName("site")
	found := uncarried([]unstructured.Unstructured{route})
	require.Len(t, found, 1)
	assert.Equal(t, "shop: HTTPRoute site is not served: spec.rules is empty; add a rule with a backend", found[0].Detail)
	many := make([]unstructured.Unstructured, shownHosts+2)
	for i := range many {
		many[i] = route
	}
	found = uncarried(many)
	require.Len(t, found, shownHosts+1)
	assert.Equal(t, "2 more HTTPRoutes", found[shownHosts].Detail)
}

// TestPublicHosts names what is not served, and why.
func TestPublicHosts(t *testing.T) {
	state := controlapi.RoutesState{}
	assert.Equal(t, ok("the control plane has no gateway"), publicHosts(state))
	state.Gateway = "apps.example.com"
	state.Hosts = []controlapi.HostStatus{{Host: "a.apps.example.com", Served: true, Certificate: controlapi.CertificateReady, Reach: controlapi.ReachReady}}
	assert.Equal(t, ok("the gateway of apps.example.com serves 1 hosts"), publicHosts(state))
	state.Hosts = append(state.Hosts,
		controlapi.HostStatus{Host: "www.example.org", Reason: "set CNAME www.example.org"},
		controlapi.HostStatus{Host: "b.example.org", Served: true, Certificate: controlapi.CertificateFailed, Reason: "the CA refuses"},
	)
	state.Hosts = append(state.Hosts, controlapi.HostStatus{
		Host: "c.example.org", Served: true, Certificate: controlapi.CertificateReady, Reach: controlapi.ReachFailed, Reason: "no pod listens",
	})
	found := publicHosts(state)
	require.Len(t, found, 3)
	assert.Equal(t, warning("c.example.org gets no answer of its App", "no pod listens")[0], found[2])
	assert.Equal(t, warning("www.example.org is not served", "set CNAME www.example.org")[0], found[0])
	assert.Equal(t, warning("b.example.org has no certificate", "the CA refuses")[0], found[1])
	for i := range 10 {
		state.Hosts = append(state.Hosts, controlapi.HostStatus{Host: fmt.Sprintf("%d.example.org", i)})
	}
	found = publicHosts(state)
	require.Len(t, found, shownHosts+1)
	assert.Equal(t, "8 more hosts", found[shownHosts].Detail)
}
