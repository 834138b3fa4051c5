package helm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/release/common"
)

// TestRollback_Resumes sends the command again; it goes to the revision that was the target before.
func TestRollback_Resumes(t *testing.T) {
	history := []record{
		{version: 3, status: common.StatusFailed, command: "back"},
		{version: 2, status: common.StatusDeployed, command: "put"},
		{version: 1, status: common.StatusSuperseded},
	}
	for command, want := range map[string]int{"back": 1, "another": 2, "": 2} {
		s := &session{history: history, store: &store{command: command}}
		assert.False(t, s.carriedOut(), command)
		to, err := s.revision(0)
		require.NoError(t, err)
		assert.Equal(t, want, to.version, command)
	}
	assert.True(t, (&session{history: history, store: &store{command: "put"}}).carriedOut(), "another one came since")
	assert.True(t, (&session{history: history[1:], store: &store{command: "put"}}).carriedOut())
	_, err := (&session{history: history[:1], store: &store{command: "back"}}).revision(0)
	require.Error(t, err)
}
