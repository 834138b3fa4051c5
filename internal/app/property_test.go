package app_test

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// commands is a random order of commands, for testing/quick.
type commands []command

type command struct {
	verb string
	n    int
}

// Generate makes commands a quick.Generator.
func (commands) Generate(r *rand.Rand, size int) reflect.Value {
	verbs := []string{"deploy", "deploy", "deploy", "scale", "scale", "rollback", "rollback", "delete", "pause", "resume"}
	all := commands{{"deploy", r.Intn(4)}}
	for range 3 + r.Intn(min(size, 12)) {
		all = append(all, command{verbs[r.Intn(len(verbs))], r.Intn(4)})
	}
	return reflect.ValueOf(all)
}

// model is what the cluster should come to.
type model struct {
	there    bool
	image    string
	replicas int32
	paused   bool
	history  []string // images, in order
}

func (m *model) apply(c command) {
	switch c.verb {
	case "deploy":
		image := fmt.Sprintf("example.com/web:%d", c.n)
		if !m.there {
			*m = model{there: true}
		}
		m.become(image)
		m.replicas = int32(c.n + 1) // a deploy that does not name the pause keeps it
	case "scale":
		m.replicas = int32(c.n)
	case "rollback":
		if len(m.history) > 1 {
			m.become(m.history[len(m.history)-2])
		}
	case "pause", "resume":
		m.paused = c.verb == "pause"
	case "delete":
		*m = model{}
	}
}

func (m *model) become(image string) {
	m.image = image
	if n := len(m.history); n == 0 || m.history[n-1] != image {
		m.history = append(m.history, image)
	}
}

func carryOut(t *testing.T, e *app.Engine, k runnerapi.Key, c command) error {
	t.Helper()
	ctx := t.Context()
	var err error
	switch c.verb {
	case "deploy":
		spec := image(fmt.Sprint(c.n))
		spec.Replicas = new(int32(c.n + 1))
		_, err = e.Deploy(ctx, k, spec, byTest)
	case "scale":
		_, err = e.Scale(ctx, k, runnerapi.Scale{Replicas: new(int32(c.n))}, byTest)
	case "rollback":
		_, err = e.Rollback(ctx, k, runnerapi.RollbackTo{}, byTest)
	case "pause":
		_, err = e.Pause(ctx, k, byTest)
	case "resume":
		_, err = e.Resume(ctx, k, byTest)
	case "delete":
		err = e.Delete(ctx, k, byTest)
	}
	return err
}

// TestCommands_LastOneWins sends commands as fast as they are taken,
// without waiting for what becomes of any.
func TestCommands_LastOneWins(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	run := 0
	property := func(all commands) bool {
		run++
		k := key(ns, fmt.Sprintf("any-%d", run))
		m := &model{}
		for i, c := range all {
			err := carryOut(t, e, k, c)
			switch {
			case !m.there && c.verb != "deploy":
				require.Equal(t, runnerapi.CodeNotFound, code(err), "%v at %d", all, i)
				continue
			case c.verb == "rollback" && len(m.history) < 2:
				require.Equal(t, runnerapi.CodeConflict, code(err), "%v at %d", all, i)
				continue
			}
			require.NoError(t, err, "%v at %d", all, i)
			m.apply(c)
		}
		if m.paused {
			require.NoError(t, carryOut(t, e, k, command{verb: "resume"}))
		}
		eventually(t, fmt.Sprintf("%v comes to %+v", all, *m), func() bool { return m.holds(t, env, k) })
		if m.there {
			var images []string
			for _, r := range revisions(t, e, k) {
				images = append([]string{r.Image}, images...)
			}
			assert.Equal(t, m.history[max(len(m.history)-runnerapi.DefaultRevisionHistory, 0):], images, "%v", all)
		}
		return !t.Failed()
	}
	const seed = 20260102
	orders := 6
	if suite.IsRelease() {
		orders = 25
	}
	err := quick.Check(property, &quick.Config{MaxCount: orders, Rand: rand.New(rand.NewSource(seed))})
	require.NoError(t, err)
}

func (m *model) holds(t *testing.T, env *kubetest.Env, k runnerapi.Key) bool {
	t.Helper()
	a, d := &v1alpha1.App{}, &appsv1.Deployment{}
	there, made := exists(t, env, k, a), exists(t, env, k, d)
	if !m.there {
		return !there && !made
	}
	return there && made && a.Spec.Image == m.image && ptr.Deref(a.Spec.Replicas, 1) == m.replicas && *d.Spec.Replicas == m.replicas &&
		d.Spec.Template.Spec.Containers[0].Image == m.image && a.Status.ObservedGeneration == a.Generation
}
