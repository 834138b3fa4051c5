package kube_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/recording"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestRecordingStore stores with the agent's own rights, and has the cluster's administrator
// try to change a part.
func TestRecordingStore(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	store := k.RecordingStore()
	const older, newer = "20260101t000000-0123456789abcdef", "20260102t000000-0123456789abcdef"
	large := strings.Repeat("x", recording.MaxPart)
	for _, part := range []struct {
		id   string
		n    int
		text string
	}{{newer, 0, "c"}, {older, 0, "a\n\"\u009b"}, {older, 1, large}, {older, 1, "a second Put"}} {
		require.NoError(t, store.Put(t.Context(), part.id, part.n, []byte(part.text)))
	}
	all, err := store.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []recording.Entry{
		{ID: older, Parts: 2, Last: 1, Bytes: int64(5 + len(large))}, {ID: newer, Parts: 1, Bytes: 1},
	}, all)
	var b bytes.Buffer
	require.NoError(t, recording.Write(t.Context(), store, older, &b))
	assert.Equal(t, "a\n\"\u009b"+large, b.String())
	none, err := store.Get(t.Context(), newer, 1)
	require.NoError(t, err)
	assert.Nil(t, none)

	part := &appsv1.ControllerRevision{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: kubetest.AgentNamespace, Name: "recording-" + newer + "-000000"}, part))
	part.Data.Raw = []byte(`{"text":"another"}`)
	require.Error(t, env.Client.Update(t.Context(), part), "the API server refuses to change a recording")

	require.NoError(t, recording.Delete(t.Context(), store, older))
	all, err = store.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 1)
}
