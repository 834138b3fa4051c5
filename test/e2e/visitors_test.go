package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const (
	restarts = 20
	// postsPerSecond come while something restarts.
	postsPerSecond = 100
)

// TestVisitors_LoseNoPOST has requests that no client may repeat come through the gateway while the
// App and the agent restart. The App closes its port at SIGTERM at once. internal/controlplane has
// the same test for gateways and control planes.
func TestVisitors_LoseNoPOST(t *testing.T) {
	suite.Release(t, "requests through restarts of App and agent")
	const app = "visited"
	removeApp(t, app)
	pipeops(t, "deploy", agentName, app, "--image", image, "--replicas", "2", "--port", "8080", "--probe-path", "/healthz", "--public", "--wait=2m")
	url := strings.TrimSpace(pipeops(t, "status", agentName, app, "-o", "jsonpath={.status.publicUrls[0]}"))
	visitor, err := sys.Visitor(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, url+" answers", func(ctx context.Context) error {
		_, err := post(ctx, visitor, url)
		return err
	}))
	t.Run("the App", func(t *testing.T) {
		answers := visit(t, visitor, url, func(int) { pipeops(t, "restart", agentName, app, "--wait=2m") })
		assert.Len(t, answers, 1, "of 200 alone: %v", answers)
	})
	t.Run("an agent with one replica", func(t *testing.T) {
		answers := visit(t, visitor, url, func(i int) { require.NoError(t, sys.RolloutAgent(t.Context(), strconv.Itoa(i))) })
		delete(answers, "503")
		assert.Len(t, answers, 1, "of 200 and 503 alone: %v", answers)
	})
	t.Run("an agent with two replicas", func(t *testing.T) {
		require.NoError(t, sys.ScaleAgent(t.Context(), 2))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			assert.NoError(t, sys.ScaleAgent(ctx, 1))
		})
		answers := visit(t, visitor, url, func(i int) { require.NoError(t, sys.RolloutAgent(t.Context(), "two-"+strconv.Itoa(i))) })
		assert.Len(t, answers, 1, "of 200 alone: %v", answers)
	})
}

// visit sends requests at a steady rate while something restarts, and counts the answers by their
// status, or by the error for those without.
func visit(t *testing.T, c *http.Client, url string, restart func(i int)) map[string]int {
	t.Helper()
	answers := map[string]int{}
	var mu sync.Mutex
	var visits sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	steady := rate.NewLimiter(postsPerSecond, 1)
	visits.Go(func() {
		for steady.Wait(ctx) == nil {
			visits.Go(func() {
				answer, err := post(t.Context(), c, url)
				if err != nil {
					answer = err.Error()
				}
				mu.Lock()
				defer mu.Unlock()
				answers[answer]++
			})
		}
	})
	began := time.Now()
	for i := range restarts {
		restart(i)
	}
	took := time.Since(began)
	stop()
	visits.Wait()
	t.Logf("%d restarts in %s: %v", restarts, took.Round(time.Second), answers)
	assert.Positive(t, answers["200"])
	return answers
}

// post returns the status of the answer to a request that net/http cannot repeat.
func post(ctx context.Context, c *http.Client, url string) (status string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, io.NopCloser(strings.NewReader("text")))
	if err != nil {
		return "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return "", fmt.Errorf("%s, then %w", resp.Status, err)
	}
	return strconv.Itoa(resp.StatusCode), nil
}

// TestVisitors_SignIn lets in a user with a password, over the gateway and the tunnel. A password
// that is taken back lets in no more.
func TestVisitors_SignIn(t *testing.T) {
	const app, secret = "guarded", "guarded-users"
	removeApp(t, app)
	file := filepath.Join(t.TempDir(), "auth")
	users := func(password string) {
		t.Helper()
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append([]byte("anna:"), hash...), 0o600))
		pipeops(t, "secret", "set", agentName, secret, "--from-file", file)
	}
	users("first")
	pipeops(t, "deploy", agentName, app, "--image", image, "--port", "8080", "--probe-path", "/healthz", "--public", "--basic-auth-secret", secret, "--wait=2m")
	url := strings.TrimSpace(pipeops(t, "status", agentName, app, "-o", "jsonpath={.status.publicUrls[0]}"))
	visitor, err := sys.Visitor(t.Context())
	require.NoError(t, err)
	answers := func(password string, status int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, harness.Eventually(ctx, fmt.Sprintf("%s answers %d", url, status), func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			if err != nil {
				return err
			}
			if password != "" {
				r.SetBasicAuth("anna", password)
			}
			resp, err := visitor.Do(r)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != status {
				return fmt.Errorf("it answers %d", resp.StatusCode)
			}
			return nil
		}))
	}
	answers("", http.StatusUnauthorized)
	answers("first", http.StatusOK)
	users("second")
	answers("first", http.StatusUnauthorized)
	answers("second", http.StatusOK)
	pipeops(t, "secret", "delete", agentName, secret)
}
