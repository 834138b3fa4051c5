package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

// eagerVPA names the image that is made of the module. The recommender looks often.
var eagerVPA = component{Mode: "always", Values: map[string]any{"vertical-pod-autoscaler": map[string]any{"recommender": map[string]any{
	"image": map[string]any{"tag": upstream.RecommenderVersion}, "extraArgs": []string{"--recommender-interval=5s"},
}}}}

// TestVPA_BesideRightSizing: the agent applies what it finds right for an App, a
// VerticalPodAutoscaler that is off recommends beside it, and a Runner sees both. The recommender,
// kube-state-metrics and Prometheus are the real ones, from the real charts.
func TestVPA_BesideRightSizing(t *testing.T) {
	suite.Release(t, "what VPA recommends, beside right-sizing")
	const app = "sized"
	load(t, upstream.Recommender)
	load(t, upstream.Monitoring...)
	installMonitoring(t, map[string]component{"prometheus": watchful(t), "vpa": eagerVPA})
	removeApp(t, app)
	pipeops(t, "deploy", agentName, app, "--image", image, "--port", "8080", "--replicas", "1", "--right-sizing", "apply", "--wait=2m")

	off := autoscaler(app)
	require.NoError(t, sys.Kube.Apply(t.Context(), off))
	t.Cleanup(func() { assert.NoError(t, sys.Kube.Delete(context.Background(), off)) })
	await.Until(t, "the recommender recommends", func() bool { return target(t, off) != nil })
	await.Until(t, "a Runner sees both recommendations", func() bool {
		var m runnerapi.AppMetrics
		require.NoError(t, json.Unmarshal([]byte(pipeops(t, "metrics", agentName, app, "-o", "json")), &m))
		if m.VPA == nil || len(m.VPA.Containers) == 0 || m.VPA.Containers[0].CPU == nil || len(m.Sizing.Containers) == 0 {
			return false
		}
		assert.Equal(t, app, m.VPA.Name)
		assert.Equal(t, "Off", m.VPA.Mode)
		assert.Equal(t, runnerapi.SizingApply, m.Sizing.Mode)
		return m.VPA.Containers[0].Name == m.Sizing.Containers[0].Name &&
			fmt.Sprintf("%dm", *m.VPA.Containers[0].CPU) == target(t, off)["cpu"]
	})
	assert.Regexp(t, `FITS.*VPA`, pipeops(t, "metrics", agentName, app), "the table has both columns")
}

// autoscaler is off, as docs/cluster-owner/components.md has it for Apps that the agent sizes.
func autoscaler(app string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
		"metadata": map[string]any{"name": app, "namespace": namespace},
		"spec": map[string]any{
			"targetRef":    map[string]any{"apiVersion": "pipeops.io/v1alpha1", "kind": "App", "name": app},
			"updatePolicy": map[string]any{"updateMode": "Off"},
		},
	}}
}

// target returns what the recommender wrote into the object for its only container; nil for nothing
// yet.
func target(t *testing.T, vpa *unstructured.Unstructured) map[string]any {
	t.Helper()
	now := vpa.DeepCopy()
	require.NoError(t, sys.Kube.Get(t.Context(), types.NamespacedName{Namespace: vpa.GetNamespace(), Name: vpa.GetName()}, now))
	list, _, err := unstructured.NestedSlice(now.Object, "status", "recommendation", "containerRecommendations")
	require.NoError(t, err)
	if len(list) == 0 {
		return nil
	}
	return list[0].(map[string]any)["target"].(map[string]any)
}
