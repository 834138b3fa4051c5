package controlplane

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// TestOperatorClient_Concurrent: of calls side by side, as Terraform makes them, one renews.
func TestOperatorClient_Concurrent(t *testing.T) {
	p := start(t)
	client, err := operatorapi.NewClient(p.operator("alice", administration.RoleOperator), "test")
	require.NoError(t, err)
	defer func() { assert.NoError(t, client.Close()) }()
	var saved atomic.Int32
	client.Renewing(operatorapi.Renewal{
		Save: func(administration.Credentials) error {
			saved.Add(1)
			return nil
		},
		Note: func(err error) { assert.NoError(t, err) },
		Now:  func() time.Time { return time.Now().Add(administration.MaxOperatorTTL) },
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := operatorapi.ListTokens.Do(t.Context(), client, struct{}{})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.EqualValues(t, 1, saved.Load())
}
