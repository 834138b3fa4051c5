package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestOldRecordsAreSwept(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, err := New(env.Agent, Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	j := k.Journal()
	claim := runnerapi.Claim{Caller: runnerapi.Caller{Runner: "sweeper"}, Key: "old", Command: "put-app"}
	old, _, err := j.Claim(t.Context(), claim)
	require.NoError(t, err)

	j.now = func() time.Time { return time.Now().Add(runnerapi.JournalAge + time.Minute) }
	claim.Body = []byte("another")
	young, known, err := j.Claim(t.Context(), claim)
	require.NoError(t, err, "an old key may be used again")
	assert.False(t, known)
	assert.Equal(t, old.ID, young.ID)

	require.NoError(t, j.sweep(t.Context()))
	_, err = j.Find(t.Context(), old.ID)
	assert.Error(t, err)
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a","command":"put-app","fingerprint":"00"}`), `{"id":"a","done":true,"app":{"uid":"u","generation":3}}`)
	f.Add([]byte(`{}`), "")
	f.Add([]byte(`{"answer":"AAAA"}`), `{"answer":1}`)
	f.Fuzz(func(t *testing.T, data []byte, end string) {
		r := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}}
		r.Annotations = map[string]string{managed.Operation: end}
		c, err := decodeRecord(r)
		if err == nil && len(data)+len(end) > maxRecord {
			t.Fatalf("read %d bytes: %+v", len(data)+len(end), c)
		}
	})
}
