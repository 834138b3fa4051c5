package cmdutil

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestMissing_PublicHost(t *testing.T) {
	app := runnerapi.App{}
	app.Status.Phase = runnerapi.PhaseHealthy
	assert.False(t, missing(app), "it is not public")
	app.Spec.Ingress = &runnerapi.Ingress{Public: true}
	assert.True(t, missing(app), "nothing is known yet")
	for reason, want := range map[string]bool{runnerapi.ReasonHostNotServed: true, runnerapi.ReasonNoGateway: false, runnerapi.ReasonNotPublic: false} {
		app.Status.Conditions = []runnerapi.Condition{*runnerapi.ConditionIngressReady.False(reason, "m", "f")}
		assert.Equal(t, want, missing(app), reason)
	}
	app.Status.PublicURLs = []string{"https://web-default-shop.apps.example.com/"}
	assert.False(t, missing(app))
}
