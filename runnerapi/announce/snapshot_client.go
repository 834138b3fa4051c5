package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
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

// SnapshotClient requests from the control plane all agents, or the history of one.
type SnapshotClient struct {
	BaseURL string
	// HTTPClient presents the Runner's certificate.
	HTTPClient *http.Client
}

// Agents returns all current agents. A refusal is a [problem.Error]. Temporary errors are retried a
// few times first.
func (c *SnapshotClient) Agents(ctx context.Context) ([]Agent, error) {
	url := strings.TrimSuffix(c.BaseURL, "/") + SnapshotPath
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the control plane for the agents: %w; check its URL", err)
	}
	body, err := c.do(req, maxSnapshot)
	if err != nil {
		return nil, fmt.Errorf("ask the control plane for the agents: %w", err)
	}
	agents, err := parseSnapshot(body)
	if err != nil {
		return nil, fmt.Errorf("the control plane's answer (%s): %w", url, err)
	}
	return agents, nil
}

// do returns the body of a successful answer. A refusal is a [problem.Error].
func (c *SnapshotClient) do(req *retryablehttp.Request, most int64) ([]byte, error) {
	req.Header.Set("Accept", "application/json")
	resp, err := c.client().Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, problem.Read(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > most {
		return nil, fmt.Errorf("the answer is larger than %d MiB", most>>20)
	}
	return body, nil
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
	client.HTTPClient.Timeout = cmp.Or(client.HTTPClient.Timeout, snapshotCallLimit)
	return client
}

// ofPages bounds what the values of an answer of the control plane take.
var ofPages = decode.Limits{Bytes: math.MaxInt32, Values: 1 << 20, Depth: 100}

func parseSnapshot(body []byte) ([]Agent, error) {
	var snapshot Snapshot
	if err := ofPages.JSON(body, &snapshot); err != nil {
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

// Snapshot is the answer of SnapshotPath: an object, not a list, so that it can grow.
type Snapshot struct {
	Agents []Agent `json:"agents"`
}

// SnapshotPath is where the control plane serves the snapshot.
const SnapshotPath = "/v1/agents"
