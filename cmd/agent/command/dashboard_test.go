package command

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestDashboard_ServesLoopback starts the command on a cluster that is away, opens its link and
// ends it.
func TestDashboard_ServesLoopback(t *testing.T) {
	away := httptest.NewServer(http.NotFoundHandler())
	defer away.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"shop",
		"clusters":[{"name":"c","cluster":{"server":"`+away.URL+`"}}],"users":[{"name":"u","user":{}}],
		"contexts":[{"name":"shop","context":{"cluster":"c","user":"u"}}]}`), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	root := newRoot()
	root.SetArgs([]string{"dashboard", "--no-browser", "--kubeconfig", kubeconfig})
	root.SetOut(in)
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = in.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	_, link, found := strings.Cut(lines.Text(), "Dashboard: ")
	require.True(t, found, lines.Text())
	require.True(t, strings.HasPrefix(link, "http://127.0.0.1:"), link)
	go func() { _, _ = io.Copy(io.Discard, out) }()

	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Len(t, resp.Cookies(), 1)

	site, _, _ := strings.Cut(link, "/enter")
	req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, site+"/", nil)
	require.NoError(t, err)
	req.AddCookie(resp.Cookies()[0])
	resp, err = client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "10", resp.Header.Get("Refresh"), "the page comes back by itself")
	assert.Contains(t, string(body), "shop")

	stop()
	require.NoError(t, await.Receive(t, ended, "the end of the dashboard"))
}

func TestKubectlPlugin(t *testing.T) {
	assert.Nil(t, calledAs("/usr/bin/pipeops-agent"))
	for _, name := range []string{"/usr/local/bin/kubectl-pipeops", "kubectl-pipeops.exe"} {
		root := newRoot()
		root.Annotations = calledAs(name)
		assert.Contains(t, root.UsageString(), "kubectl pipeops", name)
	}
}
