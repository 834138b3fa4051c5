package agent

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// silent is an API server that takes requests and answers none.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestHeartbeat_APIServerHangs: the heartbeat is not delayed for long. The control plane would
// consider the agent offline, and the agent would not learn of revoked Runners.
func TestHeartbeat_APIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := kube.New(&rest.Config{Host: "http://kubernetes.invalid", Transport: silent{}}, kube.Options{Namespace: "agent"})
		require.NoError(t, err)
		began, uid := time.Now(), "uid"
		o := &observer{
			version: "v1.0.0", now: time.Now, kube: k, cluster: &clusterID{}, cas: &caRotation{}, updates: &selfUpdate{}, checkup: &checkup{},
			components: func(ctx context.Context) []controlapi.Component {
				<-ctx.Done()
				return nil
			},
		}
		o.cluster.uid.Store(&uid)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		beat, err := o.observe(ctx, &tunnel.Set{}, true)
		require.Error(t, err)
		assert.Equal(t, "v1.0.0", beat.AgentVersion)
		assert.LessOrEqual(t, time.Since(began), 30*time.Second)
	})
}
