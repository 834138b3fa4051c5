package cli_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// TestReady_RetriesUntilReady; without a wait it asks once.
func TestReady_RetriesUntilReady(t *testing.T) {
	var asked atomic.Int64
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	}))
	defer program.Close()
	question, err := http.NewRequestWithContext(t.Context(), http.MethodGet, program.URL, nil)
	require.NoError(t, err)
	notReady := errors.New("not ready")
	read := func(resp *http.Response) error {
		text, err := io.ReadAll(resp.Body)
		require.Error(t, err, "an answer has a bound")
		assert.Len(t, text, 64<<10)
		if resp.StatusCode != http.StatusOK {
			return notReady
		}
		return nil
	}
	require.ErrorIs(t, cli.AwaitReady("the agent", question, 0, nil, read), notReady)
	assert.EqualValues(t, 1, asked.Load())
	asked.Store(0)
	require.NoError(t, cli.AwaitReady("the agent", question, time.Hour, nil, read))
	assert.EqualValues(t, 2, asked.Load())

	program.Close()
	err = cli.AwaitReady("the agent", question, 0, nil, read)
	require.ErrorContains(t, err, "the agent does not answer: ")
	require.ErrorContains(t, err, "(fix: see whether it runs and listens at that address, and its log)")
}
