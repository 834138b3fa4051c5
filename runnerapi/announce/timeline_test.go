package announce_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestTimeline_NewestByPage(t *testing.T) {
	const kept, onAPage = 7, 3
	var asked []int
	read := func(q announce.TimelineQuery) (page announce.TimelinePage, err error) {
		assert.Equal(t, "web", q.App, "each page is of the same question")
		asked = append(asked, q.Limit)
		from := uint64(kept)
		if q.Before > 0 {
			from = q.Before - 1
		}
		for n := from; n > 0 && len(page.Events) < min(q.Limit, onAPage); n-- {
			page.Events = append(page.Events, announce.Event{Sequence: n})
		}
		page.More = from > uint64(len(page.Events))
		return page, nil
	}
	for limit, want := range map[int]struct {
		first uint64
		asked []int
	}{
		2:   {6, []int{2}},
		3:   {5, []int{3}},
		5:   {3, []int{5, 2}},
		7:   {1, []int{7, 4, 1}},
		100: {1, []int{100, 97, 94}},
	} {
		asked = nil
		events, err := announce.TimelineQuery{App: "web", Limit: limit}.Newest(read)
		require.NoError(t, err)
		assert.Equal(t, want.asked, asked)
		assert.Len(t, events, min(limit, kept))
		assert.Equal(t, want.first, events[0].Sequence, "oldest first")
		assert.True(t, slices.IsSortedFunc(events, func(a, b announce.Event) int { return int(a.Sequence) - int(b.Sequence) }))
	}

	failed := errors.New("away")
	_, err := announce.TimelineQuery{Limit: 1}.Newest(func(announce.TimelineQuery) (announce.TimelinePage, error) { return announce.TimelinePage{}, failed })
	require.ErrorIs(t, err, failed)
}
