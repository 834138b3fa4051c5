package helm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
)

// TestNothingIsChangedUnderAnOldLock, as a process finds it that was stopped and goes on: it
// hears only later that somebody else has the lock.
func TestNothingIsChangedUnderAnOldLock(t *testing.T) {
	l := &lock{holding: holding{Renewed: time.Now()}}
	require.NoError(t, l.stands())
	l.Renewed = time.Now().Add(-staleAfter)
	require.ErrorContains(t, l.stands(), "another command may be at work")

	s := &store{fence: t.Context(), held: l.stands}
	rel := &release.Release{Name: "r", Info: &release.Info{Status: common.StatusDeployed}}
	require.ErrorContains(t, s.Create("r", rel), "another command")
	require.ErrorContains(t, s.Update("r", rel), "another command")
	_, err := s.Delete("r")
	require.ErrorContains(t, err, "another command")
	c := &cluster{held: l.stands}
	_, err = c.Create(nil)
	require.ErrorContains(t, err, "another command")
	_, err = c.Update(nil, nil)
	require.ErrorContains(t, err, "another command")
	_, errs := c.Delete(nil, "")
	assert.Len(t, errs, 1)
}
