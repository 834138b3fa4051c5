package app_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/failures"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestScheduling_TaintedNode closes the cluster's only node to an App, and opens it again.
func TestScheduling_TaintedNode(t *testing.T) {
	suite.Release(t, "pods that fit no node")
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e := startByEvents(t, env, ns)
	seen := failures.NewSightings()
	seen.In(t, env, ns)
	f := failures.Named(t, failures.LoadImages(t, env), "tainted")[0]
	f.Scene.Prepare(t, env, ns)
	seen.Expect(f.Name, f.Cause, f.Signal)
	deploy(t, e, key(ns, f.Name), f.Spec)
	checkTrouble(t, troubled(t, e, key(ns, f.Name), f), f)
	seen.Delay(t, f.Name)
	kubectl(t, env, "taint", "nodes", env.Cluster.NodeName(), "dedicated-")
	within(t, podPatience, "the open node takes it", func() bool { return phaseOf(t, e, key(ns, f.Name)) == runnerapi.PhaseHealthy })
}

// hostPortPolicy has every pod of a namespace ask for a port of its node, as the
// injected agents of some monitoring systems do.
const hostPortPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
    - patchType: ApplyConfiguration # a list in a JSONPatch has the API server panic (1.36.3)
      applyConfiguration:
        expression: >-
          Object{spec: Object.spec{containers: [Object.spec.containers{name: object.spec.containers[0].name,
          ports: [Object.spec.containers.ports{containerPort: 9100, hostPort: 19100, protocol: "TCP"}]}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
`

// TestScheduling_HostPortClash wants two pods on a node that has their port once.
func TestScheduling_HostPortClash(t *testing.T) {
	suite.Release(t, "pods that fit no node")
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e := startByEvents(t, env, ns)
	seen := failures.NewSightings()
	seen.In(t, env, ns)
	cmd := env.Cluster.KubectlCommand(t.Context(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(hostPortPolicy, "NAME", ns))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Cleanup(func() {
		_, err := env.Cluster.Kubectl(context.Background(), "delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", ns)
		assert.NoError(t, err)
	})
	image := helloImage(t, env)
	eventually(t, "the API server applies the policy", func() bool {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		}
		require.NoError(t, env.Client.Create(t.Context(), pod, client.DryRunAll))
		return len(pod.Spec.Containers[0].Ports) == 1
	})
	c := failures.Failure{
		Spec: runnerapi.AppSpec{Image: image, Replicas: new(int32(2))}, Signal: failures.Unscheduled, Lives: true,
		Cause: runnerapi.CausePortClash, Message: "no node has host port 19100 free", Fix: "hostPort",
	}
	seen.Expect("monitored", c.Cause, c.Signal)
	deploy(t, e, key(ns, "monitored"), c.Spec)
	checkTrouble(t, troubled(t, e, key(ns, "monitored"), c), c)
	seen.Delay(t, "monitored")
	within(t, podPatience, "one pod serves", func() bool { return phaseOf(t, e, key(ns, "monitored")) == runnerapi.PhaseDegraded })
}
