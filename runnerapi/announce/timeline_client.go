package announce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// MaxTimelinePage is the longest answer that is read: a page, with room for one event
// more and for what is around them.
const MaxTimelinePage = MaxTimelineBytes + 2*MaxEventSize

// Timeline returns a page of the events of an agent, by its ID, and its Apps. A refusal is a
// [problem.Error]; an agent that the Runner is not granted counts as not found. Temporary errors
// are retried a few times first.
func (c *SnapshotClient) Timeline(ctx context.Context, agentID string, q TimelineQuery) (TimelinePage, error) {
	page, err := c.timeline(ctx, agentID, q)
	if err != nil {
		return page, fmt.Errorf("ask the control plane for the timeline of agent %s: %w", printable.Clip(agentID), err)
	}
	return page, nil
}

func (c *SnapshotClient) timeline(ctx context.Context, agentID string, q TimelineQuery) (TimelinePage, error) {
	if err := checkAgentID(agentID); err != nil {
		return TimelinePage{}, fmt.Errorf("its ID %w", err)
	}
	text, err := url.JoinPath(c.BaseURL, SnapshotPath, agentID, "timeline")
	if err != nil {
		return TimelinePage{}, fmt.Errorf("%w; check its URL", err)
	}
	if values := q.values(); len(values) > 0 {
		text += "?" + values.Encode()
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, text, nil)
	if err != nil {
		return TimelinePage{}, fmt.Errorf("%w; check its URL", err)
	}
	body, err := c.do(req, MaxTimelinePage)
	if err != nil {
		return TimelinePage{}, err
	}
	var page TimelineBody
	if err := ofPages.JSON(body, &page); err != nil {
		return TimelinePage{}, fmt.Errorf("the answer is not the JSON expected: %w; check the control plane's URL", err)
	}
	if page.Events == nil {
		return TimelinePage{}, errors.New("the answer has no field events; check the control plane's URL")
	}
	return page.decode()
}
