package discovery

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func TestAgentNames_SurviveOutage(t *testing.T) {
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)
	add := func(id, name string) {
		require.NoError(t, s.InsertAgent(t.Context(), store.Agent{ID: id, Name: name, ClusterUID: id, State: "online", RegisteredAt: time.Now()}))
	}
	add("a1", "shop")
	names := NewNames(s)
	assert.Equal(t, "a1", names.Of("a1"), "nothing was read yet")
	names.Refresh(t.Context())
	assert.Equal(t, "shop", names.Of("a1"))
	add("a2", "bank")
	assert.Equal(t, "a2", names.Of("a2"))
	names.Refresh(t.Context())
	assert.Equal(t, "bank", names.Of("a2"))
	require.NoError(t, s.Close())
	names.read = time.Time{}
	names.Refresh(t.Context())
	assert.Equal(t, "bank", names.Of("a2"))
}
