package app_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestPort_NotListening tries the ports of pods on a real node: as the agent reaches them
// itself, and as it does by the API server where it cannot.
func TestPort_NotListening(t *testing.T) {
	suite.Release(t, "ports that no probe looks at")
	t.Parallel()
	env := kubetest.Full(t)
	image := helloImage(t, env)
	for name, change := range map[string][]func(*app.Engine){
		"direct": nil, "forwarded": {(*app.Engine).OutOfThePodsNetwork},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := ownNamespace(t, env)
			e, _ := startWith(t, limitedTo(env, ns), append(change, (*app.Engine).WithoutRechecks)...)
			silent, good, slow, local := key(ns, "silent"), key(ns, "good"), key(ns, "slow"), key(ns, "local")
			port := []runnerapi.Port{{Port: 8080}}
			deploy(t, e, slow, runnerapi.AppSpec{Image: image, Ports: port, Args: []string{"-start-delay=3m"}})
			deploy(t, e, silent, runnerapi.AppSpec{Image: image, Ports: []runnerapi.Port{{Name: "web", Port: 8080}, {Name: "none", Port: 9999}}})
			deploy(t, e, local, runnerapi.AppSpec{Image: image, Ports: port, Args: []string{"-listen=127.0.0.1:8080"}})

			phase := func(k runnerapi.Key, want runnerapi.Phase, cause runnerapi.Cause) (a runnerapi.App) {
				within(t, podPatience, k.Name+" is "+string(want)+" "+string(cause), func() bool {
					var err error
					a, err = e.Get(t.Context(), k)
					require.NoError(t, err)
					d := a.Status.Diagnosis
					return a.Status.Phase == want && (d == nil && cause == "" || d != nil && d.Cause == cause)
				})
				return a
			}
			phase(slow, runnerapi.PhaseDegraded, runnerapi.CausePortNotListening)
			a := phase(silent, runnerapi.PhaseDegraded, runnerapi.CausePortNotListening)
			assert.Contains(t, a.Status.Diagnosis.Message, "TCP port 9999")
			assert.Equal(t, "silent", a.Status.Diagnosis.Container)
			assert.Contains(t, a.Status.Diagnosis.Object, "pod/silent-")

			deploy(t, e, good, runnerapi.AppSpec{Image: image, Ports: port})
			phase(good, runnerapi.PhaseHealthy, "")
			a = phase(local, runnerapi.PhaseHealthy, "")
			if name == "direct" {
				within(t, podPatience, "it is said to listen on the loopback alone", func() bool {
					a, err := e.Get(t.Context(), local)
					require.NoError(t, err)
					return len(a.Status.Conditions) == 1 && a.Status.Conditions[0].Reason == runnerapi.ReasonOnlyOnLoopback
				})
			} else {
				assert.Empty(t, a.Status.Conditions, "the agent cannot tell")
			}
			phase(slow, runnerapi.PhaseHealthy, "") // it heals by itself
		})
	}
}
