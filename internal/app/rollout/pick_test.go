package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
)

// After two bad deploys, the revision before is bad, too.
func TestRollback_SkipsFailedRevisions(t *testing.T) {
	all := []appsv1.ControllerRevision{{Revision: 3}, {Revision: 4}, {Revision: 5}, {Revision: 6}}
	for _, c := range []struct {
		healthy  []int64
		revision int64
	}{
		{[]int64{3, 4}, 4}, {[]int64{3}, 3}, {[]int64{3, 6}, 3}, // never to the current one
		{[]int64{1}, 5}, {nil, 5}, // of which nothing is kept, or known
	} {
		found, err := pick(all, 0, c.healthy)
		require.NoError(t, err)
		assert.Equal(t, c.revision, found.Revision, "%v", c.healthy)
	}
	found, err := pick(all, 5, []int64{3})
	require.NoError(t, err)
	assert.EqualValues(t, 5, found.Revision, "whichever is asked for")
}
