package announce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// maxSnapshot is room for some fifty thousand agents.
	maxSnapshot       = 64 << 20
	snapshotRetries   = 3
	snapshotRetryMin  = 200 * time.Millisecond
	snapshotRetryMax  = 800 * time.Millisecond
	snapshotCallLimit = 30 * time.Second // for one try
)

// SnapshotClient asks the control plane for all agents.
type SnapshotClient struct {
	BaseURL string
	// HTTPClient presents the Runner's certificate.
	HTTPClient *http.Client
}

// Agents returns all agents as of now. A refusal is a [problem.Error]. What may pass is
// tried again a few times first.
func (c *SnapshotClient) Agents(ctx context.Context) ([]Agent, error) {
	url := strings.TrimSuffix(c.BaseURL, "/") + SnapshotPath
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the control plane for the agents: %w; check its URL", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.client().Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the control plane for the agents: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the control plane for the agents: %w", problem.Read(resp))
	}
	agents, err := readSnapshot(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the control plane's answer (%s): %w", url, err)
	}
	return agents, nil
}

func (c *SnapshotClient) client() *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.Logger = nil
	client.RetryMax = snapshotRetries
	client.RetryWaitMin, client.RetryWaitMax = snapshotRetryMin, snapshotRetryMax
	client.Backoff = retryablehttp.RateLimitLinearJitterBackoff
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler // keep the last answer's problem
	own := *http.DefaultClient
	if c.HTTPClient != nil {
		own = *c.HTTPClient
	}
	client.HTTPClient = &own
	if client.HTTPClient.Timeout == 0 {
		client.HTTPClient.Timeout = snapshotCallLimit
	}
	return client
}

func readSnapshot(r io.Reader) ([]Agent, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxSnapshot+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxSnapshot {
		return nil, fmt.Errorf("is larger than %d MiB", maxSnapshot>>20)
	}
	var snapshot snapshotBody
	if err := json.Unmarshal(body, &snapshot); err != nil {
		return nil, fmt.Errorf("is not the JSON expected: %w; check the control plane's URL", err)
	}
	if snapshot.Agents == nil {
		return nil, errors.New("has no field agents; check the control plane's URL")
	}
	for i := range snapshot.Agents {
		if err := snapshot.Agents[i].Validate(); err != nil {
			return nil, fmt.Errorf("agents[%d].%w", i, err)
		}
	}
	return snapshot.Agents, nil
}
