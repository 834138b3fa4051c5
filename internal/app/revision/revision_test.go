package revision

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestDifference_HidesValues(t *testing.T) {
	was := runnerapi.AppSpec{
		Image: "a:1", Command: []string{"run", "secret1"}, Env: []runnerapi.EnvVar{{Name: "A", Value: "secret2"}, {Name: "B", Value: "b"}},
		Resources: runnerapi.Resources{Limits: runnerapi.ResourceAmounts{Memory: "1Gi"}},
		Probes:    runnerapi.Probes{Readiness: &runnerapi.Probe{Exec: []string{"check", "secret3"}}},
	}
	is := *was.DeepCopy()
	is.Image, is.Command[1], is.Env[0].Value, is.Env[1].Name = "a:2", "secret4", "secret5", "C"
	is.Resources.Limits.Memory, is.Probes.Readiness.Exec[1] = "2Gi", "secret6"
	is.Replicas, is.Paused = new(int32(7)), new(true)
	before, err := content(was)
	require.NoError(t, err)
	now, err := content(is)
	require.NoError(t, err)
	changes := difference(before, now)
	assert.Equal(t, []runnerapi.Change{
		{Field: "command", Kind: "changed"}, {Field: "env[A]", Kind: "changed"},
		{Field: "env[B]", Kind: "removed"}, {Field: "env[C]", Kind: "added"},
		{Field: "image", Kind: "changed", From: "a:1", To: "a:2"},
		{Field: "probes.readiness.exec", Kind: "changed"},
		{Field: "resources.limits.memory", Kind: "changed", From: "1Gi", To: "2Gi"},
	}, changes)
	raw, err := json.Marshal(changes)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "secret")
	assert.Empty(t, difference(now, now))
}

func TestDifference_Bounded(t *testing.T) {
	now := map[string]any{"image": strings.Repeat("x", 1000)}
	for range 100 {
		now["f"+strings.Repeat("x", len(now))] = "v"
	}
	changes := difference(map[string]any{}, now)
	assert.Len(t, changes, maxChanges+1)
	for _, c := range changes {
		assert.LessOrEqual(t, len(c.To), maxChangeValue+len("…"))
	}
}

func TestRollback_KeepsReplicas(t *testing.T) {
	r := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"image":"a:1","replicas":9,"paused":true}`)}}
	spec, err := Restored(r, runnerapi.AppSpec{Image: "a:2", Args: []string{"x"}, Replicas: new(int32(3))})
	require.NoError(t, err)
	assert.Equal(t, runnerapi.AppSpec{Image: "a:1", Replicas: new(int32(3))}, spec)
}

func FuzzRevision(f *testing.F) {
	f.Add([]byte(`{"image":"a","env":[{"name":"A","value":"1"}]}`), `[{"field":"image","kind":"changed"}]`)
	f.Add([]byte(`{"env":[{"name":"A"},{"name":"A"},1,null]}`), `{}`)
	f.Add([]byte(`[]`), ``)
	f.Fuzz(func(t *testing.T, data []byte, changes string) {
		r := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}}
		r.Annotations = map[string]string{objectmeta.Changes: changes}
		Describe(r)
		tree, err := decodeContent(data)
		if err != nil {
			return
		}
		if d := difference(tree, tree); len(d) > 0 {
			t.Fatalf("%s differs from itself: %+v", data, d)
		}
		difference(map[string]any{}, tree)
		_, _ = Restored(r, runnerapi.AppSpec{Image: "a"})
	})
}

func FuzzNotes(f *testing.F) {
	f.Add(`[{"generation":2,"runner":"ci","undone":{"revision":1}}]`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, raw string) {
		a := &v1alpha1.App{}
		a.Generation, a.Annotations = 3, map[string]string{objectmeta.Notes: raw}
		before := NoteOf(a, 3)
		require.NoError(t, AddNote(a, Note{Runner: "me"}))
		if n := NoteOf(a, 4); n.Runner != "me" || before.Generation != 3 {
			t.Fatalf("%q: %+v", raw, n)
		}
		if len(notesOf(a)) > 2 || !reflect.DeepEqual(notesOf(a), notesOf(a)) {
			t.Fatalf("%q: %+v", raw, notesOf(a))
		}
	})
}
