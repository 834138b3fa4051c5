package update

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/launch"
)

// TestService_RollsBackUnready has a release that was ready on trial.
func TestService_RollsBackUnready(t *testing.T) {
	dir := launch.In(t.TempDir())
	before := launch.Staged{Version: "v1.1.0", Offer: "a", From: "v1.0.0"}
	tried := launch.Staged{Version: "v1.2.0", Offer: "b", From: "v1.1.0"}
	require.NoError(t, dir.Change(func(r *launch.Record) {
		r.Confirm(before)
		r.Prove(before)
		r.Confirm(tried)
	}))
	t.Setenv("PIPEOPS_UPDATE_LAUNCHED", "v1.2.0")
	now, missing := time.Now(), errors.New("tunnel: connecting")
	s := Service{
		Dir: dir, Version: "v1.2.0", Deadline: time.Minute, Started: now,
		Now: func() time.Time { return now }, Ready: func(context.Context) error { return missing },
	}
	r, err := s.Recall(t.Context())
	require.NoError(t, err)
	require.Equal(t, recordOf(tried, "updating", ""), r)
	now = now.Add(time.Minute - time.Second)
	require.NoError(t, s.Watch(t.Context(), r), "there is time yet")
	now = now.Add(time.Second)
	require.ErrorIs(t, s.Watch(t.Context(), r), ErrRelaunch)
	kept, err := dir.Load()
	require.NoError(t, err)
	assert.Equal(t, &launch.Confirmed{Staged: before, Proven: true}, kept.Confirmed)
	require.NotNil(t, kept.Failed)
	assert.Equal(t, tried, kept.Failed.Staged)
	assert.Contains(t, kept.Failed.Reason, "not in its own place within 1m0s: tunnel: connecting")
}
