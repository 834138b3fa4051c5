package gateway_test

import (
	_ "embed"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/test/h2spec"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

//go:embed testdata/h2spec.txt
var h2specExceptions string

// exceptions returns the reasons why cases of h2spec fail, by case.
func exceptions() map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(h2specExceptions) {
		id, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if id != "" && !strings.HasPrefix(id, "#") {
			reasons[id] = strings.TrimSpace(reason)
		}
	}
	return reasons
}

// TestH2spec runs the whole suite through the gateway and the agent. testdata/h2spec.txt has the
// reason for each case that fails.
func TestH2spec(t *testing.T) {
	suite.Release(t, "conformance to HTTP/2, by h2spec")
	const localhost = "localhost" // h2spec takes the name for TLS and the address to connect to from one flag
	w := newWorld(t, nil)
	w.leadTo(localhost, w.backend(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	})))
	serves(t, w.store, "a1", time.Now(), hosts.CNAME, host, localhost)
	require.NoError(t, w.table.Refresh(t.Context()))
	_, port, err := net.SplitHostPort(w.secure.String())
	require.NoError(t, err)
	cases, err := h2spec.Run(t.Context(), localhost, port, t.TempDir())
	require.NoError(t, err)
	require.Greater(t, len(cases), 140, "h2spec ran all of its cases")
	reasons := exceptions()
	for _, c := range cases {
		reason, excepted := reasons[c.ID]
		delete(reasons, c.ID)
		switch {
		case excepted:
			assert.NotEmpty(t, reason, c.ID)
			assert.True(t, c.Failure != "" || c.Skipped, "%s passes: remove its exception", c.ID)
		case c.Skipped:
			t.Errorf("%s (%s) was skipped", c.ID, c.Title)
		default:
			assert.Empty(t, c.Failure, "%s: %s", c.ID, c.Title)
		}
	}
	assert.Empty(t, reasons, "exceptions of cases that there are not")
}
