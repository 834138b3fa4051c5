package duplicates_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/duplicates"
)

func read(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, decode.Text.LooseYAML([]byte(text), &object), text)
	return object
}

// TestRemove has the pattern of the charts of Keycloak (env), fleetdm (env) and Omada (ports).
func TestRemove(t *testing.T) {
	deployment := &unstructured.Unstructured{Object: read(t, `
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    metadata: {labels: {app: web, tier: front}}
    spec:
      imagePullSecrets: [{name: a}, {name: a}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [a]}, {ip: 10.0.0.1, hostnames: [b]}]
      initContainers: [{env: [{name: A, value: one}, {name: A}]}]
      containers:
      - env: [{name: A, value: one}, {name: B, value: b}, {name: A, value: two}, {value: none}, {value: none}]
        ports: [{name: http, containerPort: 8088}, {name: dns, containerPort: 8088, protocol: UDP}, {name: portal, containerPort: 8088, protocol: TCP}, {name: x, containerPort: 1}, {containerPort: 1}]
        readinessProbe: {httpGet: {path: /, port: http}}
        lifecycle: {preStop: {tcpSocket: {port: http}}}
`)}
	service := &unstructured.Unstructured{Object: read(t, "kind: Service\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: http}, {port: 81, targetPort: dns}, {port: 82, targetPort: 8088}]}")}
	other := &unstructured.Unstructured{Object: read(t, "kind: Service\nspec: {selector: {app: other}, ports: [{port: 80, targetPort: http}]}")}
	warnings := duplicates.Remove([]*unstructured.Unstructured{other, deployment, service})
	at := "spec.template.spec."
	assert.Equal(t, map[*unstructured.Unstructured][]string{deployment: {
		at + "imagePullSecrets[0] is left out: imagePullSecrets[1] has the same key (a)",
		at + "hostAliases[0] is left out: hostAliases[1] has the same key (10.0.0.1)",
		at + "initContainers[0].env[0] is left out: env[1] has the same key (A)",
		at + "containers[0].env[0] is left out: env[2] has the same key (A)",
		at + "containers[0].ports[0] is left out: ports[2] has the same key (8088/TCP)",
		at + "containers[0].ports[3] is left out: ports[4] has the same key (1/TCP)",
	}}, warnings)
	spec := deployment.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"]
	assert.Equal(t, read(t, `
imagePullSecrets: [{name: a}]
hostAliases: [{ip: 10.0.0.1, hostnames: [a, b]}]
initContainers: [{env: [{name: A}]}]
containers:
- env: [{name: B, value: b}, {name: A, value: two}, {value: none}, {value: none}]
  ports: [{name: dns, containerPort: 8088, protocol: UDP}, {name: portal, containerPort: 8088, protocol: TCP}, {name: x, containerPort: 1}]
  readinessProbe: {httpGet: {path: /, port: portal}}
  lifecycle: {preStop: {tcpSocket: {port: portal}}}
`), spec)
	assert.Equal(t, read(t, "kind: Service\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: 8088}, {port: 81, targetPort: dns}, {port: 82, targetPort: 8088}]}"), service.Object)
	assert.Equal(t, read(t, "kind: Service\nspec: {selector: {app: other}, ports: [{port: 80, targetPort: http}]}"), other.Object)
	assert.Empty(t, duplicates.Remove([]*unstructured.Unstructured{deployment, service}))
}
