package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

const fixURL = "make sure that PIPEOPS_CONTROL_PLANE_URL is a control plane's"

// controlPlane asks the control plane how it is.
func (n *network) controlPlane(ctx context.Context) []Finding {
	trust, _, err := n.trust()
	if err != nil {
		return failure(err, fixConfiguration)
	}
	answer, err := n.get(ctx, trust, "/readyz")
	if err != nil {
		return failure(n.explain(err), fixURL)
	}
	var state struct {
		Ready  *bool             `json:"ready"`
		Checks map[string]string `json:"checks"`
	}
	if err := json.Unmarshal(answer.body, &state); err != nil || state.Ready == nil {
		return failed(fmt.Sprintf("what answers at %s is not a control plane: %d %s", n.target.Host, answer.status, http.StatusText(answer.status)), fixURL)
	}
	if *state.Ready {
		return ok("is ready")
	}
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(state.Checks)) {
		if strings.HasPrefix(state.Checks[name], "failed") {
			bad = append(bad, name+" "+state.Checks[name])
		}
	}
	return failed("is not ready: "+strings.Join(bad, "; "), "ask its operator to look at its log; the agent tries again by itself")
}

// client makes the agent's calls, once each.
func (n *network) client(from controlapi.Origin) (*controlapi.Client, error) {
	trust, _, err := n.trust()
	if err != nil {
		return nil, err
	}
	return controlapi.NewClient(controlapi.ClientConfig{
		URL: n.Config.ControlPlaneURL, TLS: func() *tls.Config { return trust }, Log: zerolog.Nop(), Now: n.Now, Retries: -1,
		Origin: func() controlapi.Origin { return from },
		Proxy:  n.proxies,
	})
}
