package doctor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// TestPublicHosts names what is not served, and why.
func TestPublicHosts(t *testing.T) {
	state := controlapi.RoutesState{}
	assert.Equal(t, ok("the control plane has no gateway"), publicHosts(state))
	state.Gateway = "apps.example.com"
	state.Hosts = []controlapi.HostStatus{{Host: "a.apps.example.com", Served: true, Certificate: controlapi.CertificateReady}}
	assert.Equal(t, ok("the gateway of apps.example.com serves 1 hosts"), publicHosts(state))
	state.Hosts = append(state.Hosts,
		controlapi.HostStatus{Host: "www.example.org", Reason: "set CNAME www.example.org"},
		controlapi.HostStatus{Host: "b.example.org", Served: true, Certificate: controlapi.CertificateFailed, Reason: "the CA refuses"},
	)
	found := publicHosts(state)
	require.Len(t, found, 2)
	assert.Equal(t, warning("www.example.org is not served", "set CNAME www.example.org")[0], found[0])
	assert.Equal(t, warning("b.example.org has no certificate", "the CA refuses")[0], found[1])
	for i := range 10 {
		state.Hosts = append(state.Hosts, controlapi.HostStatus{Host: fmt.Sprintf("%d.example.org", i)})
	}
	found = publicHosts(state)
	require.Len(t, found, shownHosts+1)
	assert.Equal(t, "7 more hosts", found[shownHosts].Detail)
}
