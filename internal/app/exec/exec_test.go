package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func TestExec_NamesMissingProgram(t *testing.T) {
	for runtime, says := range map[string]string{
		"runc":       `Internal error occurred: error executing command in container: failed to exec in container: failed to start exec "0381": OCI runtime exec failed: exec failed: unable to start container process: exec: "psql": executable file not found in $PATH: unknown`,
		"runc, path": `Internal error occurred: OCI runtime exec failed: exec failed: unable to start container process: exec: "psql": stat psql: no such file or directory: unknown`,
		"crun":       "Internal error occurred: command error: executable file `psql` not found in $PATH: No such file or directory",
	} {
		assert.ErrorContains(t, insideProblem(errors.New(says), "web-1"), `pod web-1: there is no program "psql" in the container (fix: name one that is there`, runtime)
	}
	assert.ErrorContains(t, insideProblem(errors.New("container not running"), "web-1"), "pod web-1: container not running")
}

// runBy runs a command at an API server that takes no SPDY. That it does by SPDY where it is taken,
// the tests with a cluster show.
func runBy(t *testing.T, upgraded http.HandlerFunc) (out string, code int, err error) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer of-the-agent", r.Header.Get("Authorization"))
		if r.Method == http.MethodPost {
			http.Error(w, "there is a proxy that knows no SPDY", http.StatusBadRequest)
			return
		}
		upgraded(w, r)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL + "/exec")
	require.NoError(t, err)
	executor, err := (&Executor{rest: &rest.Config{
		Host: s.URL, BearerToken: "of-the-agent",
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})},
	}}).executor(u)
	require.NoError(t, err)
	var stdout bytes.Buffer
	code, err = exitCode(t.Context(), executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &stdout}), "web-1")
	return stdout.String(), code, err
}

func TestExec_FallsBackToWebSocket(t *testing.T) {
	out, code, err := runBy(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"v5.channel.k8s.io"}})
		if !assert.NoError(t, err) {
			return
		}
		for _, frame := range []string{
			"\x01said", // standard output
			"\x03" + `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`,
		} {
			assert.NoError(t, conn.Write(context.WithoutCancel(r.Context()), websocket.MessageBinary, []byte(frame)))
		}
		_ = conn.Close(websocket.StatusNormalClosure, "") // the client may be gone
	})
	require.NoError(t, err)
	assert.Equal(t, 7, code)
	assert.Equal(t, "said", out)
}

func TestExec_ReportsRefusal(t *testing.T) {
	_, _, err := runBy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		assert.NoError(t, json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: `cannot create resource "pods/exec"`,
		}))
	})
	var told *problem.Error
	require.ErrorAs(t, err, &told)
	assert.Contains(t, told.Error(), "pods/exec")
	assert.Equal(t, problem.Forbidden, told.Code)
}
