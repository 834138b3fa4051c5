package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestPercentile(t *testing.T) {
	var d durations
	for i := 100; i > 0; i-- {
		d = append(d, time.Duration(i))
	}
	require.EqualValues(t, 50, d.median())
	require.EqualValues(t, 99, d.percentile(99))
	require.EqualValues(t, 100, d.percentile(100))
	require.EqualValues(t, 1, d.percentile(0))
	require.EqualValues(t, 7, durations{7}.percentile(99))
	require.EqualValues(t, 100, d[0], "the measurements stay in their order")
}

func TestThereIsRoomForAllPods(t *testing.T) {
	for _, s := range []size{{Apps: 1, Replicas: 1}, {Apps: 1000, Replicas: 5, Unmanaged: 20000}} {
		require.Greater(t, s.nodes()*podsPerNode, s.managed()+s.Unmanaged)
	}
}

func TestWhatIsExportedIsWhatSomebodyWouldWrite(t *testing.T) {
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{
			"name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "2", "generation": int64(3),
			"creationTimestamp": "now", "ownerReferences": []any{"App"}, "labels": map[string]any{"a": "b"},
			"annotations": map[string]any{"deployment.kubernetes.io/revision": "1"},
		},
		"spec":   map[string]any{"clusterIP": "10.0.0.1", "clusterIPs": []any{"10.0.0.1"}, "type": "ClusterIP"},
		"status": map[string]any{},
	}}
	strip(service)
	require.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "web", "namespace": "shop", "labels": map[string]any{"a": "b"}, "annotations": map[string]any{}},
		"spec":     map[string]any{"type": "ClusterIP"},
	}, service.Object)
}
