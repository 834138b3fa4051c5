package routes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func TestRouteList_SortsByHost(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	routes := publicState{
		routes: []store.Route{
			{AgentID: "x", Host: "b", Path: "/", Since: at(1)}, {AgentID: "x", Host: "a", Path: "/z", Since: at(2)},
			{AgentID: "y", Host: "a", Path: "/", Since: at(3)},
		},
		agents: []store.Agent{{ID: "x", Name: "x"}, {ID: "y", Name: "y"}},
		claims: []store.HostClaim{{AgentID: "x", Host: "a", Proof: hosts.TXT}, {AgentID: "y", Host: "a"}},
	}.judge(at(4))
	require.Len(t, routes, 3)
	assert.Equal(t, []string{"https://a/", "https://a/z", "https://b/"}, []string{routes[0].URL, routes[1].URL, routes[2].URL})
	require.NotNil(t, routes[0].HeldBy)
	assert.Equal(t, "x", routes[0].HeldBy.Name)
}
