package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func types(all []events.Event) []events.Type {
	var out []events.Type
	for _, e := range all {
		out = append(out, e.Type)
	}
	return out
}

// TestEvents_SurviveRestart lets the receiver be away, and the engine die and
// come back, around everything that is to be announced.
func TestEvents_SurviveRestart(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	r := &receiver{}
	r.set(errors.New("the control plane is away"))
	first, stop := start(t, env, ns, r.take)
	k, ended := key(ns, "kept"), key(ns, "ended")
	deploy(t, first, k, web())
	rollOut(t, env, k)
	deploy(t, first, ended, web())
	eventually(t, "both were tried", func() bool { return len(r.refused(k.Name)) > 0 && len(r.refused(ended.Name)) > 0 })
	require.NoError(t, first.Delete(t.Context(), ended, byTest), "nobody has to listen for an App to go")
	eventually(t, "its end was tried", func() bool {
		for _, e := range r.refused(ended.Name) {
			if e.Type == events.Removed {
				return true
			}
		}
		return false
	})
	stop()
	require.Empty(t, r.of(k.Name))

	second, stop := start(t, env, ns, r.take)
	eventually(t, "the second engine tries too", func() bool {
		tries := r.refused(k.Name)
		return tries[len(tries)-1].Type == events.Healthy
	})
	r.set(nil)
	eventually(t, "all is announced", func() bool { return len(r.of(k.Name)) > 1 && len(r.of(ended.Name)) > 0 })
	got, tried := r.of(k.Name), r.refused(k.Name)
	assert.Equal(t, []events.Type{events.Progressing, events.Healthy}, types(got), "what became of it meanwhile, in order")
	assert.Equal(t, tried[len(tried)-1].ID, got[1].ID, "sent again, the same event has the same ID")
	assert.Equal(t, []events.Type{events.Removed}, types(r.of(ended.Name)))

	_, err := second.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(2))}, byTest)
	require.NoError(t, err)
	eventually(t, "the change is announced", func() bool { return len(r.of(k.Name)) == 3 })
	eventually(t, "and noted: else it would be sent once more", func() bool {
		return get(t, env, k, &v1alpha1.App{}).Status.Announced.Generation == 2
	})
	stop()

	third, _ := start(t, env, ns, r.take)
	a, err := third.Get(t.Context(), k)
	require.NoError(t, err)
	require.EqualValues(t, 2, a.Generation)
	eventually(t, "the deployment is scaled", func() bool { return *get(t, env, k, &appsv1.Deployment{}).Spec.Replicas == 2 })
	rollOut(t, env, k)
	eventually(t, "healthy again is a new event", func() bool { return len(r.of(k.Name)) == 4 })
	assert.Equal(t, []events.Type{events.Progressing, events.Healthy, events.Progressing, events.Healthy}, types(r.of(k.Name)),
		"a restart repeats nothing")
	assert.Len(t, r.of(ended.Name), 1)
	eventually(t, "nothing is left to be announced", func() bool {
		return len(get(t, env, key(kubetest.AgentOf(ns), "pipeops-removed-apps"), &corev1.ConfigMap{}).Data) == 0
	})
}

// TestEvents_EndRecordedByFormerLeader has an App go, and its end be noted, by somebody else than
// the replica that leads: by one that was held when it lost the lease.
func TestEvents_EndRecordedByFormerLeader(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	r := &receiver{}
	k := key(ownNamespace(t, env), "ended-elsewhere")
	e, _ := start(t, env, k.Namespace, r.take)
	deploy(t, e, k, web())
	eventually(t, "the leader tells, and has read which ends are noted", func() bool { return len(r.of(k.Name)) == 1 })

	a := get(t, env, k, &v1alpha1.App{})
	end, err := json.Marshal(events.Event{ID: "noted-elsewhere", Type: events.Removed, Time: time.Now(), Namespace: k.Namespace, Name: k.Name})
	require.NoError(t, err)
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.AgentOf(k.Namespace), Name: "pipeops-removed-apps"}}
	require.NoError(t, client.IgnoreAlreadyExists(env.Client.Create(t.Context(), note.DeepCopy())))
	patch, err := json.Marshal(map[string]any{"data": map[string]string{string(a.UID): string(end)}})
	require.NoError(t, err)
	require.NoError(t, env.Client.Patch(t.Context(), note, client.RawPatch(client.Merge.Type(), patch)))
	require.NoError(t, env.Client.Delete(t.Context(), a))

	eventually(t, "its end is told", func() bool {
		told := r.of(k.Name)
		return told[len(told)-1].ID == "noted-elsewhere"
	})
}

// TestEvents_EndByKubectl deletes Apps with kubectl: one while an agent leads, and one while none
// runs.
func TestEvents_EndByKubectl(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	r := &receiver{}
	seen, unseen, kept := key(ns, "seen"), key(ns, "unseen"), key(ns, "kept")
	e, stop := start(t, env, ns, r.take)
	for _, k := range []runnerapi.Key{seen, unseen, kept} {
		deploy(t, e, k, web())
		eventually(t, "it is announced", func() bool { return len(r.of(k.Name)) == 1 })
	}
	require.NoError(t, env.Client.Delete(t.Context(), get(t, env, seen, &v1alpha1.App{})))
	eventually(t, "its end is announced", func() bool { return len(r.of(seen.Name)) == 2 })
	assert.Equal(t, []events.Type{events.Progressing, events.Removed}, types(r.of(seen.Name)))
	stop()

	require.NoError(t, env.Client.Delete(t.Context(), get(t, env, unseen, &v1alpha1.App{})))
	before := len(r.comparisons())
	start(t, env, ns, r.take)
	eventually(t, "the next leader sends which Apps there are", func() bool { return len(r.comparisons()) > before })
	assert.Equal(t, []string{kept.Name}, r.comparisons()[before])
}

// TestEvents_RecreatedFromBeginning has an event of the previous App delivered after that App's
// end.
func TestEvents_RecreatedFromBeginning(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	r := &receiver{}
	k := key(ns, "recreated")
	var e *app.Engine
	var replace sync.Once
	e, _ = start(t, env, ns, func(ctx context.Context, call events.Call) error {
		err := r.take(ctx, call)
		if len(r.of(k.Name)) > 0 {
			replace.Do(func() {
				assert.NoError(t, e.Delete(ctx, k, byTest))
				_, err := e.Deploy(ctx, k, web(), byTest)
				assert.NoError(t, err)
			})
		}
		return err
	})
	deploy(t, e, k, web())
	eventually(t, "the second is announced", func() bool { return len(r.of(k.Name)) > 2 })
	assert.Equal(t, []events.Type{events.Progressing, events.Removed, events.Progressing}, types(r.of(k.Name)))
}

// TestEvents_ResentAfterRestore has a control plane that forgot an App's event, and says so when
// the next one comes.
func TestEvents_ResentAfterRestore(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	r, kept, other := &receiver{}, key(ns, "kept"), key(ns, "other")
	var restored sync.Once
	var ranges []events.Range // written by the sender alone, read after its events
	e, _ := start(t, env, ns, func(ctx context.Context, call events.Call) (err error) {
		if len(call.Events) > 0 && call.Events[0].Name == other.Name {
			restored.Do(func() {
				assert.NotZero(t, call.After)
				err = problem.Errorf(problem.Conflict, "send the current states", "events are missing")
			})
		}
		if err != nil {
			return err
		}
		if call.Current != nil && call.After == 0 { // none of them counts as heard
			ranges = append(ranges, *call.Current)
			call.Current = nil // show what comes again
		}
		return r.take(ctx, call)
	})
	deploy(t, e, kept, web())
	eventually(t, "it is announced, and that is noted", func() bool {
		return len(r.of(kept.Name)) == 1 && get(t, env, kept, &v1alpha1.App{}).Status.Announced != nil
	})
	deploy(t, e, other, web())
	eventually(t, "the other one is announced", func() bool { return len(r.of(other.Name)) == 1 })
	got := r.of(kept.Name)
	require.Equal(t, []events.Type{events.Progressing, events.Progressing}, types(got))
	assert.Equal(t, got[0].ID, got[1].ID, "a control plane that has it ignores it")
	assert.Equal(t, []events.Range{{}}, ranges)
}
