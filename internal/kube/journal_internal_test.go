package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestJournal_SweepsOldRecords(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, err := New(env.Agent, Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	j := k.Journal()
	claim := backend.Claim{Caller: runnerapi.Caller{Runner: "sweeper"}, Key: "old", Command: "put-app"}
	old, _, err := j.Claim(t.Context(), claim)
	require.NoError(t, err)

	j.now = func() time.Time { return time.Now().Add(backend.JournalAge + time.Minute) }
	claim.Body = []byte("another")
	young, known, err := j.Claim(t.Context(), claim)
	require.NoError(t, err, "an old key may be used again")
	assert.False(t, known)
	assert.Equal(t, old.ID, young.ID)

	require.NoError(t, j.sweep(t.Context()))
	_, err = j.Find(t.Context(), old.ID)
	assert.Error(t, err)
}

func TestJournal_SharePerRunner(t *testing.T) {
	now := time.Now()
	var all []kept
	add := func(runner string, n int, age time.Duration) {
		for i := range n {
			all = append(all, kept{runner: runner, at: now.Add(-age - time.Duration(i)*time.Second)})
		}
	}
	left := func(size int) map[string]int {
		out := map[string]int{}
		for _, r := range all {
			out[r.runner]++
		}
		for _, r := range surplus(all, size, now.Add(-backend.JournalAge)) {
			out[r.runner]--
		}
		return out
	}
	add("quiet", 10, 20*time.Hour)
	add("busy", 3000, time.Minute)
	assert.Equal(t, map[string]int{"quiet": 10, "busy": 1990}, left(2000), "who sends little keeps all, however old")
	add("busier", 5000, time.Second)
	assert.Equal(t, map[string]int{"quiet": 10, "busy": 995, "busier": 995}, left(2000))
	assert.Equal(t, map[string]int{"quiet": 10, "busy": 3000, "busier": 5000}, left(10000))
	add("quiet", 5, 25*time.Hour)
	assert.Equal(t, 10, left(2000)["quiet"], "what is a day old goes")

	young := map[string]time.Time{}
	for _, r := range surplus(all, 2000, now.Add(-backend.JournalAge)) {
		young[r.runner] = r.at // they come from the oldest on
	}
	assert.Equal(t, now.Add(-time.Second-995*time.Second), young["busier"], "the oldest go")
	all = nil
	assert.Empty(t, left(2000))
}

func TestJournal_ShareOfActiveRunners(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, err := New(env.Agent, Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	record, _, err := k.Journal().Claim(t.Context(), backend.Claim{Caller: runnerapi.Caller{Runner: "sharer"}, Key: "a", Command: "put-app"})
	require.NoError(t, err)
	have, err := k.Journal().read(t.Context(), record.ID)
	require.NoError(t, err)
	assert.Equal(t, "sharer", have.Annotations[objectmeta.Runner])
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a","command":"put-app","fingerprint":"00"}`), `{"id":"a","done":true,"app":{"uid":"u","generation":3}}`)
	f.Add([]byte(`{}`), "")
	f.Add([]byte(`{"answer":"AAAA"}`), `{"answer":1}`)
	f.Fuzz(func(t *testing.T, data []byte, end string) {
		r := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}}
		r.Annotations = map[string]string{objectmeta.Operation: end}
		c, err := decodeRecord(r)
		if err == nil && len(data)+len(end) > maxRecord {
			t.Fatalf("read %d bytes: %+v", len(data)+len(end), c)
		}
	})
}
