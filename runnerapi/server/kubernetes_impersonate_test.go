package server_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Impersonation is refused, or passed on as a whole.
func TestKubernetesAPI_KeepsImpersonation(t *testing.T) {
	agent, api, p, log := kubernetes(t)
	r := newRaw(t, agent)
	const path = "/v1/kubernetes/api/v1/namespaces/shop/pods"
	for _, headers := range [][]string{
		{"Impersonate-Uid", "0"}, {"impersonate-extra-scopes", "all"}, {"Impersonate-Anything", "x"},
		{"Impersonate-Group", "system:masters"}, {"Impersonate-User", ""}, {"Impersonate-User", "alice", "Impersonate-Uid", "0"},
	} {
		resp, answer := r.do(http.MethodGet, path, "", headers...)
		assert.Equal(t, http.StatusForbidden, resp.StatusCode, headers)
		assert.Contains(t, statusIn(t, answer).Message, "PipeOps agent: ", headers)
	}
	assert.Zero(t, api.count())
	assert.Equal(t, runnerapi.CodePolicyDenied, log.all()[0].Code)

	resp, answer := r.do(http.MethodGet, path, "", "Impersonate-User", "alice", "Impersonate-Group", "web")
	require.Equal(t, http.StatusOK, resp.StatusCode, string(answer))
	assert.Equal(t, []string{"alice"}, api.last().Header["Impersonate-User"])
	assert.Equal(t, []string{"web"}, api.last().Header["Impersonate-Group"])

	p.become(refuseAll)
	resp, _ = r.do(http.MethodGet, path, "", "Impersonate-User", "alice")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	asked := p.all()
	assert.Equal(t, "alice", asked[len(asked)-1].Kubernetes.Impersonate.User, "the policy is asked about it")
}
