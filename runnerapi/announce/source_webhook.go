package announce

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// SourceWebhookPath is where the control plane serves the webhook that a Runner has for a Git
// source of an agent, as a pattern of http.ServeMux. PUT makes one, or gives it a new secret.
const SourceWebhookPath = SnapshotPath + "/{agent}/sources/{namespace}/{source}/webhook"

// SourceWebhook takes the push events of a Git server, so that the agent looks at the source at
// once.
type SourceWebhook struct {
	URL       string    `json:"url" doc:"Address for the Git server's settings. The content type may be JSON or a form."`
	Secret    string    `json:"secret,omitempty" doc:"Signs the Git server's requests. It is in the answer to PUT only."`
	CreatedAt time.Time `json:"createdAt" doc:"When its secret was made."`
	CalledAt  time.Time `json:"calledAt,omitzero" doc:"Time of the last push event; absent for none."`
	Event     string    `json:"event,omitempty" doc:"The Git server's name of that event."`
	Commit    string    `json:"commit,omitempty" doc:"The commit that it named."`
	Waiting   bool      `json:"waiting,omitempty" doc:"The agent has not acknowledged the event yet. It does so with a heartbeat."`
}

// maxWebhookAnswer is room for a SourceWebhook.
const maxWebhookAnswer = 64 << 10

// SetSourceWebhook makes the webhook of a source of an agent, or gives it a new secret. Only this
// answer has the secret. A refusal is a [problem.Error].
func (c *SnapshotClient) SetSourceWebhook(ctx context.Context, agentID string, source runnerapi.Key) (SourceWebhook, error) {
	return c.sourceWebhook(ctx, http.MethodPut, agentID, source)
}

// SourceWebhook returns the webhook of a source, without its secret. A refusal is a
// [problem.Error].
func (c *SnapshotClient) SourceWebhook(ctx context.Context, agentID string, source runnerapi.Key) (SourceWebhook, error) {
	return c.sourceWebhook(ctx, http.MethodGet, agentID, source)
}

// DeleteSourceWebhook deletes the webhook of a source. A refusal is a [problem.Error].
func (c *SnapshotClient) DeleteSourceWebhook(ctx context.Context, agentID string, source runnerapi.Key) error {
	_, err := c.sourceWebhook(ctx, http.MethodDelete, agentID, source)
	return err
}

func (c *SnapshotClient) sourceWebhook(ctx context.Context, method, agentID string, source runnerapi.Key) (hook SourceWebhook, err error) {
	if err := checkAgentID(agentID); err != nil {
		return hook, fmt.Errorf("the agent's ID %w", err)
	}
	if !runnerapi.ValidSource(source) {
		return hook, problem.Errorf(problem.Invalid, "correct its namespace or name", "%q cannot be a source", source)
	}
	text, err := url.JoinPath(c.BaseURL, SnapshotPath, agentID, "sources", source.Namespace, source.Name, "webhook")
	if err != nil {
		return hook, fmt.Errorf("%w; check the control plane's URL", err)
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, method, text, nil)
	if err != nil {
		return hook, fmt.Errorf("%w; check the control plane's URL", err)
	}
	body, err := c.do(req, maxWebhookAnswer)
	if err != nil {
		return hook, fmt.Errorf("webhook of source %s: %w", source, err)
	}
	if method == http.MethodDelete {
		return hook, nil
	}
	if err := ofPages.JSON(body, &hook); err != nil {
		return SourceWebhook{}, fmt.Errorf("the control plane's answer is not the JSON expected: %w; check its URL", err)
	}
	return hook, nil
}
