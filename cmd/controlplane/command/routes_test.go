package command

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestRoutes_Table(t *testing.T) {
	shop := routes.Claimant{ID: "a1", Name: "shop", State: announce.StateOnline}
	away := routes.Claimant{ID: "a2", Name: "bank", State: announce.StateOffline}
	route := func(agent routes.Claimant, app string, change func(*routes.Route)) routes.Route {
		r := routes.Route{URL: "https://www.example.com/", PathType: "Prefix", Agent: agent, Namespace: "n", App: app, Port: 80,
			Ready: true, Served: true, Proof: "cname", Since: time.Now().Add(-time.Hour)}
		change(&r)
		return r
	}
	var out, hints bytes.Buffer
	a := &app{streams: streams{out: &out, err: &hints}}
	err := a.printRoutes(routes.List{Omitted: 2, Items: []routes.Route{
		route(shop, "web", func(*routes.Route) {}),
		route(shop, "new", func(r *routes.Route) {
			r.HeldBy = &routes.Claimant{ID: "a1", Name: "shop", Namespace: "n", App: "web"}
		}),
		route(shop, "down", func(r *routes.Route) { r.Ready, r.Reason = false, "no pod is ready: CrashLoop\x1b[2J" }),
		route(away, "web", func(r *routes.Route) { r.HeldBy = &shop }),
	}}, &cli.Output{Format: "table"})
	require.NoError(t, err)
	lines := strings.Split(out.String(), "\n")
	for i, want := range [][]string{
		{"URL", "CONFLICT", "REASON"},
		{"https://www.example.com/", "Prefix", "shop", "web", "80", "yes", "cname", "60m"},
		{"new", "yes", "held by App n/web"},
		{"down", "no", "no pod is ready: CrashLoop [2J"},
		{"bank", "unknown", "held by agent shop"},
	} {
		for _, word := range want {
			assert.Contains(t, lines[i], word)
		}
	}
	assert.Contains(t, hints.String(), "and 2 more")
}
