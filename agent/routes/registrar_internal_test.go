package routes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func manyRoutes(n, pathLength int) []ingress.Route {
	routes := make([]ingress.Route, n)
	for i := range routes {
		routes[i] = ingress.Route{App: runnerapi.Key{Namespace: "n", Name: "a"}, Host: "shop.example.com", PathType: "Prefix", Port: 80,
			Path: fmt.Sprintf("/%05d%s", i, strings.Repeat("p", pathLength))}
	}
	return routes
}

func TestBounded(t *testing.T) {
	for _, c := range []struct{ routes, pathLength int }{{0, 0}, {controlapi.MaxRoutes, 10}, {controlapi.MaxRoutes + 7, 10}, {controlapi.MaxRoutes, 1018}} {
		req, err := bounded(manyRoutes(c.routes, c.pathLength))
		require.NoError(t, err)
		assert.Equal(t, c.routes, len(req.Routes)+req.Omitted, "what is left out is counted")
		assert.LessOrEqual(t, len(req.Routes), controlapi.MaxRoutes)
		text, err := json.Marshal(req)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(text), controlapi.MaxRoutesBytes+100)
		if c.pathLength > 1000 {
			assert.Greater(t, len(text), controlapi.MaxRoutesBytes-2000, "as many as fit")
		}
	}
}
