package helm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestHelmRelease_LastOfDuplicateKeys is as the charts of Keycloak and fleetdm have it (env), and
// Omada's (ports).
func TestHelmRelease_LastOfDuplicateKeys(t *testing.T) {
	env, r := releases(t, "twice")
	chart := pack(t, map[string]string{"templates/all.yaml": `apiVersion: batch/v1
kind: CronJob
metadata: {name: twice}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate:
   spec:
    template:
     metadata: {labels: {app: twice}}
     spec:
      restartPolicy: Never
      containers:
      - name: c
        image: registry.example.com/shop/web:1
        env: [{name: A, value: one}, {name: A, value: {{ .Values.greeting | quote }}}]
        ports: [{name: manage, containerPort: 8088}, {name: portal, containerPort: 8088}]
---
apiVersion: v1
kind: Service
metadata: {name: twice}
spec: {selector: {app: twice}, ports: [{port: 80, targetPort: manage}]}
`})
	dry := byTest
	dry.DryRun = true
	for _, greeting := range []string{"two", "three"} { // an installation, and an upgrade
		spec := of(chart, map[string]any{"greeting": greeting})
		would, err := r.Deploy(t.Context(), key("twice"), spec, dry)
		require.NoError(t, err)
		is := deploy(t, r, "twice", spec)
		require.Equal(t, runnerapi.ReleaseDeployed, is.Status, is.Description)
		is, err = r.Get(t.Context(), key("twice"))
		require.NoError(t, err)
		for _, release := range []runnerapi.Release{would, is} {
			var warnings []string
			for _, o := range release.Objects {
				warnings = append(warnings, o.Warnings...)
			}
			assert.Len(t, warnings, 2)
		}
		var live batchv1.CronJob
		require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: production, Name: "twice"}, &live))
		c := live.Spec.JobTemplate.Spec.Template.Spec.Containers[0]
		assert.Equal(t, greeting, c.Env[0].Value)
		assert.Equal(t, "portal", c.Ports[0].Name)
		s, err := service(t, env, "twice")
		require.NoError(t, err)
		assert.Equal(t, 8088, s.Spec.Ports[0].TargetPort.IntValue())
	}
}
