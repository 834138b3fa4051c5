package app_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const brokenWebhook = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAME}
webhooks:
- name: guard.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 1
  clientConfig: {url: "https://127.0.0.1:1/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
  rules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
`

const denyingPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validations: [{expression: "false", message: no deployments today}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}}}
`

// TestAdmission_NamesRefuser has a webhook that is down, and a policy, keep an App from being
// made.
func TestAdmission_NamesRefuser(t *testing.T) {
	suite.Release(t, "workloads that a webhook or a policy of the cluster's refuses")
	t.Parallel()
	env := kubetest.ControlPlane(t)
	for name, c := range map[string]struct{ manifest, message, fix string }{
		"webhook": {brokenWebhook, "webhook guard.example.com of the cluster does not answer", "bring webhook guard.example.com back"},
		"policy":  {denyingPolicy, "no deployments today", "what policy NAME names"},
		"webhook of revisions": {
			strings.ReplaceAll(brokenWebhook, "deployments", "controllerrevisions"),
			"webhook guard.example.com of the cluster does not answer", "bring webhook guard.example.com back",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := ownNamespace(t, env)
			manifest := strings.ReplaceAll(c.manifest, "NAME", ns)
			applied(t, env, manifest)
			e, _ := start(t, env, ns, nil)
			k := key(ns, "kept-out")
			var a runnerapi.App
			n := 0
			eventually(t, "the refusal is told", func() bool { // what the cluster enforces it knows a moment later
				if n++; n%20 == 1 {
					_ = e.Delete(t.Context(), k, byTest)
					deploy(t, e, k, web())
				}
				var err error
				a, err = e.Get(t.Context(), k)
				return err == nil && a.Status.Diagnosis != nil
			})
			d := a.Status.Diagnosis
			assert.Equal(t, runnerapi.CauseAdmissionRefused, d.Cause, d.Message)
			assert.Contains(t, d.Message, c.message)
			assert.Contains(t, d.Fix, strings.ReplaceAll(c.fix, "NAME", ns))
		})
	}
}

// applied applies manifests until the test ends.
func applied(t *testing.T, env *kubetest.Env, manifest string) (remove func()) {
	t.Helper()
	kubectl := func(ctx context.Context, verb ...string) {
		cmd := env.Cluster.KubectlCommand(ctx, append(verb, "-f", "-")...)
		cmd.Stdin = strings.NewReader(manifest)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	kubectl(t.Context(), "apply")
	remove = sync.OnceFunc(func() { kubectl(context.Background(), "delete", "--ignore-not-found") })
	t.Cleanup(remove)
	return remove
}
