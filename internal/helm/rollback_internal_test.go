package helm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
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

// TestView_Uninstalling: what was deleted does not say that it may have failed.
func TestView_Uninstalling(t *testing.T) {
	going := view(&release.Release{
		Info:  &release.Info{Status: common.StatusUninstalling, Description: "Deletion in progress (or silently failed)"},
		Chart: &chart.Chart{Metadata: &chart.Metadata{}},
	}, true)
	assert.Empty(t, going.Description)
	going.Description = "Service web did not go"
	assert.Empty(t, going.Uninstalled().Description)
}
