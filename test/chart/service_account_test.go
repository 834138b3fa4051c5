package chart

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pipeops/pipeops-vm-agent/deployments"
)

// TestChart_ServiceAccountTokenEqualsPatch: the chart's value and the patch of agent.yaml mount the
// same token.
func TestChart_ServiceAccountTokenEqualsPatch(t *testing.T) {
	manifest, err := deployments.Agent()
	require.NoError(t, err)
	plain, err := json.Marshal(parse(t, manifest)["Deployment pipeops-agent"])
	require.NoError(t, err)
	text, err := os.ReadFile("../../deployments/service-account-token.yaml")
	require.NoError(t, err)
	patch, err := yaml.ToJSON(text)
	require.NoError(t, err)
	patched, err := strategicpatch.StrategicMergePatch(plain, patch, appsv1.Deployment{})
	require.NoError(t, err)
	want := &unstructured.Unstructured{}
	require.NoError(t, want.UnmarshalJSON(patched))

	got := render(t, agentChart, "single.yaml", "--set", "serviceAccountToken.enabled=true,agent.controlPlaneUrl=https://control.example.com:8443/")["Deployment pipeops-agent"]
	assert.ElementsMatch(t, container(t, want)["env"], container(t, got)["env"])
	assert.ElementsMatch(t, container(t, want)["volumeMounts"], container(t, got)["volumeMounts"])
	one, err := json.Marshal(podSpec(t, got)["volumes"])
	require.NoError(t, err)
	assert.Contains(t, string(one), `"audience":"https://control.example.com:8443","expirationSeconds":600,"path":"token"`)
	other, err := json.Marshal(podSpec(t, want)["volumes"])
	require.NoError(t, err)
	var a, b []any
	require.NoError(t, json.Unmarshal(one, &a))
	require.NoError(t, json.Unmarshal(other, &b))
	assert.ElementsMatch(t, b, a)
}
