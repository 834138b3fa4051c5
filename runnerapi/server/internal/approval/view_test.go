package approval_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/approval"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

// viewOf returns what the owner is shown of a request to the Kubernetes API.
func viewOf(t *testing.T, method, target, contentType, body string) runnerapi.ApprovalView {
	t.Helper()
	r := httptest.NewRequest(method, "/v1/kubernetes"+target, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	k, err := kubernetes.Read(r)
	require.NoError(t, err)
	a, err := approval.New(r, runnerapi.Intent{Command: runnerapi.KubernetesCall, Kubernetes: &k}, []byte(body))
	require.NoError(t, err)
	return a.View()
}

// TestView_SessionsAreUnseen: the API server takes every text for true but "false" and "0".
func TestView_SessionsAreUnseen(t *testing.T) {
	for query, unseen := range map[string]bool{
		"stdin=true": true, "stdin=1": true, "stdin": true, "stdin=f": true, "stdin=F": true, "stdin=no": true, "stdin=false&stdin=true": true,
		"": false, "stdin=false": false, "stdin=False": false, "stdin=0": false,
	} {
		for _, subresource := range []string{"exec", "attach"} {
			v := viewOf(t, http.MethodPost, "/api/v1/namespaces/shop/pods/web/"+subresource+"?command=env&"+query, "", "")
			assert.Equal(t, unseen, v.Unseen != "", "%s: %s: %s", subresource, query, v.Unseen)
		}
	}
}

// TestView_LinesAreOneEach: no key of a query can pretend to be another line.
func TestView_LinesAreOneEach(t *testing.T) {
	v := viewOf(t, http.MethodDelete, "/api/v1/namespaces/shop/pods/web?a%0A%20%20DELETE%20/api/v1/pods/other%1b[2K=1&dryRun=All", "", "")
	lines := v.Lines()
	assert.Equal(t, []string{
		"DELETE /v1/kubernetes/api/v1/namespaces/shop/pods/web", `query "a\n  DELETE /api/v1/pods/other\x1b[2K": "1"`, `query dryRun: "All"`,
	}, lines)
}

// TestView_HidesSecretsOnly: the API server decides by the path what is a Secret.
func TestView_HidesSecretsOnly(t *testing.T) {
	const secret = `{"apiVersion":"v1","kind":"Secret","data":{"a":"c2VjcmV0"},"stringData":{"b":"hunter2"},"metadata":{"labels":{"c":"shown"}}}`
	for _, c := range []struct{ method, target, contentType, body, shown, hidden string }{
		{http.MethodPost, "/api/v1/namespaces/shop/secrets", "", secret, "shown", "c2VjcmV0 hunter2"},
		{http.MethodPost, "/api/v1/namespaces/shop/pods/web/proxy/run", "application/json", secret, "c2VjcmV0 hunter2", ""},
		{http.MethodPost, "/apis/example.com/v1/namespaces/shop/jobs", "application/json", secret, "c2VjcmV0 hunter2", ""},
		{http.MethodPatch, "/api/v1/namespaces/shop/secrets/a", "application/json-patch+json",
			`[{"op":"add","path":"/data/a","value":"c2VjcmV0"},{"op":"add","path":"/metadata/labels","value":{"c":"shown"}}]`, "shown", "c2VjcmV0"},
		{http.MethodPatch, "/api/v1/namespaces/shop/secrets/a", "application/json-patch+json",
			`[{"op":"add","path":"","value":{"data":{"a":"c2VjcmV0"}}},{"op":"add","path":"/metadata/annotations","value":{"c":"hunter2"}}]`, "annotations", "c2VjcmV0 hunter2"},
	} {
		v := viewOf(t, c.method, c.target, c.contentType, c.body)
		require.Empty(t, v.Unseen, c.target)
		for text := range strings.FieldsSeq(c.shown) {
			assert.Contains(t, string(v.Body), text, c.target)
		}
		for text := range strings.FieldsSeq(c.hidden) {
			assert.NotContains(t, string(v.Body), text, c.target)
		}
	}
}
