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
		Described(&v1alpha1.App{}, []appsv1.ControllerRevision{*r}, r.Revision)
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

// TestDescribed_Cautions: a rollback that changes nothing, or goes to a revision that failed, says
// so before.
func TestDescribed_Cautions(t *testing.T) {
	revisionOf := func(number int64, image string) appsv1.ControllerRevision {
		return appsv1.ControllerRevision{Revision: number, Data: runtime.RawExtension{Raw: []byte(`{"image": "` + image + `"}`)}}
	}
	a := &v1alpha1.App{}
	a.Status.Healthy = []int64{1, 2, 4}
	all := []appsv1.ControllerRevision{revisionOf(1, "a:1"), revisionOf(2, "a:2"), revisionOf(3, "a:3"), revisionOf(4, "a:1")}
	all[1].Annotations = map[string]string{objectmeta.ChangedBy: "ci", objectmeta.Actor: "anna"}
	list := Described(a, all, 4)
	require.Len(t, list, 4)
	cautions := map[int64]string{}
	for _, r := range list {
		cautions[r.Revision] = r.Caution()
	}
	assert.Contains(t, cautions[4], "the current one")
	assert.Contains(t, cautions[3], "not known to have been healthy")
	assert.Empty(t, cautions[2])
	assert.Contains(t, cautions[1], "changes nothing")
	assert.Equal(t, "ci (anna)", list[2].By())

	target, found := runnerapi.RollbackTarget(list, 0)
	assert.True(t, found)
	assert.EqualValues(t, 2, target.Revision, "the newest healthy one before the current one")
	a.Status.Healthy = nil
	target, _ = runnerapi.RollbackTarget(Described(a, all, 4), 0)
	assert.EqualValues(t, 3, target.Revision, "the one before")
	_, found = runnerapi.RollbackTarget(list[:1], 0)
	assert.False(t, found)
	_, found = runnerapi.RollbackTarget(list, 9)
	assert.False(t, found)
}
