package server_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/decode"
)

func TestAppSpec_Validate(t *testing.T) {
	for name, tc := range map[string]struct{ spec, field string }{
		"whole": {`{"image":"a","replicas":0,"ports":[{"name":"http","port":80,"service":8080},{"name":"dns","port":80,"protocol":"UDP"}],
			"env":[{"name":"A","value":"1"},{"name":"B","secret":{"name":"s","key":"k.1"}},{"name":"C"}],
			"envFrom":[{"secret":"s"},{"configMap":"c.d"}],
			"resources":{"requests":{"cpu":"250m","memory":"64Mi"},"limits":{"cpu":"0.25","memory":"64Mi"}},
			"probes":{"readiness":{"http":{"port":80}}},"imagePullSecrets":["reg"]}`, ""},
		"one port needs no name": {`{"ports":[{"port":80}]}`, ""},
		"ports need names":       {`{"ports":[{"name":"a","port":80},{"port":81}]}`, "ports[1].name"},
		"port name twice":        {`{"ports":[{"name":"a","port":80},{"name":"a","port":81}]}`, "ports[1].name"},
		"port twice":             {`{"ports":[{"name":"a","port":80,"service":1},{"name":"b","port":80}]}`, "ports[1].port"},
		"service port twice":     {`{"ports":[{"name":"a","port":80},{"name":"b","port":81,"service":80}]}`, "ports[1].service"},
		"variable twice":         {`{"env":[{"name":"A"},{"name":"A"}]}`, "env[1].name"},
		"two sources":            {`{"env":[{"name":"A","value":"1","secret":{"name":"s","key":"k"}}]}`, "env[0]"},
		"bad reference":          {`{"env":[{"name":"A","secret":{"name":"S_","key":"k"}}]}`, "env[0].secret.name"},
		"bad key":                {`{"env":[{"name":"A","configMap":{"name":"s","key":"k k"}}]}`, "env[0].configMap.key"},
		"empty envFrom":          {`{"envFrom":[{"prefix":"A_"}]}`, "envFrom[0]"},
		"two in envFrom":         {`{"envFrom":[{"secret":"a","configMap":"b"}]}`, "envFrom[0]"},
		"request above limit":    {`{"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"1000Mi"}}}`, "resources.requests.memory"},
		"cpu above limit":        {`{"resources":{"requests":{"cpu":"1.5"},"limits":{"cpu":"1499m"}}}`, "resources.requests.cpu"},
		"no quantity":            {`{"resources":{"limits":{"cpu":"much"}}}`, "resources.limits.cpu"},
		"two probes in one":      {`{"probes":{"liveness":{"http":{"port":1},"tcp":{"port":1}}}}`, "probes.liveness"},
		"empty probe":            {`{"probes":{"startup":{}}}`, "probes.startup"},
		"bad pull secret":        {`{"imagePullSecrets":["../x"]}`, "imagePullSecrets[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			var spec runnerapi.AppSpec
			assert.NoError(t, json.Unmarshal([]byte(tc.spec), &spec))
			errs := spec.Validate()
			if tc.field == "" {
				assert.Empty(t, errs)
				return
			}
			if assert.Len(t, errs, 1) {
				assert.Equal(t, tc.field, errs[0].Field)
				assert.NotEmpty(t, errs[0].Message)
			}
		})
	}
}

func TestAppSettled(t *testing.T) {
	status := func(phase runnerapi.Phase, observed int64, d *runnerapi.Diagnosis) runnerapi.App {
		return runnerapi.App{Generation: 2, Status: runnerapi.AppStatus{Phase: phase, ObservedGeneration: observed, Diagnosis: d}}
	}
	assert.True(t, status(runnerapi.PhaseHealthy, 2, nil).Settled())
	assert.True(t, status(runnerapi.PhaseFailed, 2, nil).Settled())
	assert.True(t, status(runnerapi.PhaseDegraded, 2, &runnerapi.Diagnosis{}).Settled())
	assert.False(t, status(runnerapi.PhaseDegraded, 2, nil).Settled())
	assert.False(t, status(runnerapi.PhaseHealthy, 1, nil).Settled(), "speaks of the spec before")
	assert.False(t, status(runnerapi.PhaseProgressing, 2, nil).Settled())
}

// What passes the decoder and the rules must survive them again: the reconciler
// applies the same rules to what the API let through.
func FuzzDeployBody(f *testing.F) {
	f.Add([]byte(`{"image":"a","replicas":2,"ports":[{"port":80}]}`))
	f.Add([]byte(`{"image":"a","image":"b"}`))
	f.Add([]byte(`{"env":[{"name":"A","secret":{"name":"s","key":"k"}}],"resources":{"limits":{"cpu":"1e9"}}}`))
	for _, good := range runnertest.GoodSpecs() {
		f.Add([]byte(good))
	}
	for _, bad := range runnertest.BadSpecs() {
		f.Add([]byte(bad.JSON))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var spec runnerapi.AppSpec
		if decode.Decode(body, &spec) != nil || len(spec.Validate()) > 0 {
			return
		}
		again, err := json.Marshal(spec)
		require.NoError(t, err)
		var back runnerapi.AppSpec
		if err := decode.Decode(again, &back); err != nil || len(back.Validate()) > 0 {
			t.Fatalf("%s: %v %v", again, err, back.Validate())
		}
	})
}

// checked is a body that the API decodes and checks.
type checked interface{ Validate() []runnerapi.FieldError }

// fuzzBody has what passes the decoder checked: a refusal names a field.
func fuzzBody[T checked](f *testing.F, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var spec T
		if decode.Decode(body, &spec) != nil {
			return
		}
		for _, e := range spec.Validate() {
			require.True(t, e.Field != "" && e.Message != "", "%+v", e)
		}
	})
}

func FuzzSecretBody(f *testing.F) {
	fuzzBody[runnerapi.SecretSpec](f, `{"data":{"A":"hunter2"}}`, `{"data":{"A":7},"binaryData":{"B":"AAEC"}}`)
}

func FuzzConfigMapBody(f *testing.F) {
	fuzzBody[runnerapi.ConfigMapSpec](f, `{"data":{"A":"b"}}`, `{"data":{"":"b"},"binaryData":{"../x":"AAEC"}}`)
}

func FuzzNamespaceBody(f *testing.F) {
	fuzzBody[runnerapi.NamespaceSpec](f, `{"quota":{"cpu":"4","memory":"8Gi"},"labels":{"team":"web"}}`, `{"quota":{"cpu":"1e99"},"adopt":true}`)
}

func FuzzScaleBody(f *testing.F) {
	fuzzBody[runnerapi.Scale](f, `{"replicas":3}`, `{"min":5,"max":2,"cpuPercent":0}`)
}
