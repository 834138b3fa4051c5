package runnerapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestApp_StateAndReady(t *testing.T) {
	none, two := int32(0), int32(2)
	healthy := AppStatus{Phase: PhaseHealthy, ReadyReplicas: 2, DesiredReplicas: 2}
	for name, c := range map[string]struct {
		app          App
		state, ready string
	}{
		"one pod by default":   {App{Status: AppStatus{Phase: PhaseProgressing}}, "Progressing", "0/1"},
		"two pods":             {App{Spec: AppSpec{Replicas: &two}, Status: healthy}, "Healthy", "2/2"},
		"scaled to none":       {App{Spec: AppSpec{Replicas: &none}, Status: AppStatus{Phase: PhaseHealthy}}, "Stopped", "0/0"},
		"on its way to none":   {App{Spec: AppSpec{Replicas: &none}, Status: AppStatus{Phase: PhaseProgressing, ReadyReplicas: 2}}, "Progressing", "0/0"},
		"in a rollout":         {App{Spec: AppSpec{Replicas: &two}, Status: AppStatus{Phase: PhaseProgressing, ReadyReplicas: 3}}, "Progressing", "2/2"},
		"autoscaled":           {App{Spec: AppSpec{Autoscaling: &Autoscaling{}}, Status: healthy}, "Healthy", "2/2"},
		"no node for a daemon": {App{Spec: AppSpec{Type: TypeDaemonSet}, Status: AppStatus{Phase: PhaseHealthy}}, "Healthy", "0/0"},
		"before the first run": {App{Spec: AppSpec{Type: TypeCronJob}, Status: AppStatus{Phase: PhaseHealthy}}, "Healthy", "none"},
		"after a run":          {App{Spec: AppSpec{Type: TypeJob}, Status: AppStatus{Phase: PhaseHealthy, Runs: []Run{{Outcome: "Succeeded"}}}}, "Healthy", "Succeeded"},
	} {
		assert.Equal(t, c.state, c.app.State(), name)
		assert.Equal(t, c.ready, c.app.Ready(), name)
	}
}
