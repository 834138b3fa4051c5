package webhook

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
)

// blockOf is the one block of a language in the document about webhooks.
func blockOf(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/operator/webhooks.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(text), "\n```"+language+"\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "\n```\n")
	return block + "\n"
}

func TestWebhookDocs_GoVerifies(t *testing.T) {
	dir, secret := t.TempDir(), NewSecret()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(blockOf(t, "go")), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(secret+"\n"), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "receiver", "main.go")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=-trimpath", "GO111MODULE=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	address := freeport.Address(t)
	var said bytes.Buffer
	receiver := exec.CommandContext(t.Context(), filepath.Join(dir, "receiver"), address, filepath.Join(dir, "secret"))
	receiver.Stdout = &said
	require.NoError(t, receiver.Start())
	hook := store.Webhook{URL: "http://" + address, AllowHTTP: true, Secret: secret}
	good := NewSender(hook, Options{})
	defer good.Close()
	await.Until(t, "the program listens, and takes it", func() bool {
		return good.Send(t.Context(), "event-1", []byte(`{"a":1}`)).Err == nil
	})
	hook.Secret, hook.Previous, hook.PreviousUntil = NewSecret(), secret, time.Now().Add(time.Hour)
	rotated := NewSender(hook, Options{})
	defer rotated.Close()
	assert.NoError(t, rotated.Send(t.Context(), "event-2", []byte(`{}`)).Err)
	hook.Previous = ""
	for name, s := range map[string]*Sender{
		"another secret": NewSender(hook, Options{}),
		"an old event":   NewSender(store.Webhook{URL: hook.URL, AllowHTTP: true, Secret: secret}, Options{Now: func() time.Time { return time.Now().Add(-time.Hour) }}),
	} {
		assert.Equal(t, http.StatusUnauthorized, s.Send(t.Context(), "event-3", []byte(`{}`)).Status, name)
		s.Close()
	}
	require.NoError(t, receiver.Process.Kill())
	_ = receiver.Wait() // it was killed
	assert.Equal(t, "event-1 {\"a\":1}\nevent-2 {}\n", said.String())
}

func TestWebhookDocs_ShellVerifies(t *testing.T) {
	dir, secret := t.TempDir(), NewSecret()
	var headers http.Header
	var body []byte
	plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		headers = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer plain.Close()
	s := NewSender(store.Webhook{URL: plain.URL, AllowHTTP: true, Secret: secret}, Options{})
	defer s.Close()
	require.NoError(t, s.Send(t.Context(), "event-1", []byte(`{"text":"ü 'quoted' $HOME"}`)).Err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(secret+"\n"), 0o600))
	run := func(id string) (string, error) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "body"), body, 0o600))
		shell := exec.CommandContext(t.Context(), "bash", "-eu", "-c", blockOf(t, "bash")+`verify secret "$@" body`,
			"verify", id, headers.Get("webhook-timestamp"), headers.Get("webhook-signature"))
		shell.Dir = dir
		out, err := shell.CombinedOutput()
		return string(out), err
	}
	out, err := run("event-1")
	require.NoError(t, err, out)
	assert.Equal(t, "the control plane has sent this\n", out)
	out, err = run("event-2")
	require.Error(t, err)
	assert.Equal(t, "this is not from the control plane\n", out)
	body = append(body, '\n')
	_, err = run("event-1")
	require.Error(t, err)
}
