package appfile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestRead(t *testing.T) {
	file, err := appfile.Read([]byte("image: a\nreplicas: 2\n"))
	require.NoError(t, err)
	assert.Equal(t, appfile.File{Spec: runnerapi.AppSpec{Image: "a", Replicas: new(int32(2))}}, file)

	file, err = appfile.Read([]byte("image: a\nresources: {limits: {cpu: 2, memory: 1e9}}\ndisruption: {minAvailable: 1}\n" +
		"env:\n- &a {name: PORT, value: 8080}\n- {<<: *a, name: YES}\n- {name: V, value: 1.10}\n- {name: DEBUG, value: yes}\n- {name: NONE, value: null}\n"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ResourceAmounts{CPU: "2", Memory: "1e9"}, file.Spec.Resources.Limits)
	assert.Equal(t, "1", file.Spec.Disruption.MinAvailable)
	values := map[string]string{}
	for _, e := range file.Spec.Env {
		values[e.Name] = e.Value
	}
	assert.Equal(t, map[string]string{"PORT": "8080", "YES": "8080", "V": "1.10", "DEBUG": "yes", "NONE": ""}, values, "as they are written")

	file, err = appfile.Read([]byte("apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: web, namespace: shop, labels: {a: b}}\nspec: {image: a}\n"))
	require.NoError(t, err)
	assert.Equal(t, appfile.File{Namespace: "shop", Name: "web", Spec: runnerapi.AppSpec{Image: "a"}}, file)
}

// TestRead_InputsLikeKubectl compares with kubectl's decoder, which leaves types to the API server:
// that would refuse the number and the truth value of the second one.
func TestRead_InputsLikeKubectl(t *testing.T) {
	read := func(name string) (appfile.File, runnerapi.AppSpec, error) {
		text, err := os.ReadFile(filepath.Join("testdata", "inputs", name))
		require.NoError(t, err)
		file, err := appfile.Read(text)
		require.NoError(t, err)
		text, err = yaml.YAMLToJSON(text)
		require.NoError(t, err)
		var want runnerapi.AppSpec
		return file, want, json.Unmarshal(text, &want)
	}
	have, want, err := read("01b-app-merge-key-override.yaml")
	require.NoError(t, err)
	assert.Equal(t, want, have.Spec)
	assert.EqualValues(t, 20, have.Spec.Probes.Liveness.PeriodSeconds)
	have, _, err = read("10-app-number-env.yaml")
	require.ErrorContains(t, err, "number")
	assert.Equal(t, []runnerapi.EnvVar{{Name: "PORT", Value: "8080"}, {Name: "DEBUG", Value: "true"}}, have.Spec.Env)
}

func TestRead_NamesMistakes(t *testing.T) {
	for text, says := range map[string]string{
		"- a\n":                                   "is not an object",
		"apiVersion: apps/v1\nkind: Pod\n":        `is a "Pod" of "apps/v1", not an App of pipeops.io/v1alpha1`,
		"imge: a\n":                               "line 1: imge: unknown field (did you mean image?)",
		"image: a\nhostAliases: []\n":             "line 2: hostAliases: unknown field; Kubernetes has it, and the App gets it by patches: [{patch: {spec: {template: {spec: {hostAliases: ...}}}}}]",
		"image: a\ntype: CronJob\naffinity: {}\n": "by patches: [{patch: {spec: {jobTemplate: {spec: {template: {spec: {affinity: ...}}}}}}}]",
		"apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: web}\nspec: {image: a, lifecycle: {}}\n": "spec.lifecycle: unknown field; Kubernetes has it, and the App gets it by patches: [{patch: {spec: {template: {spec: {containers: [{name: web, lifecycle: ...}]}}}}}]",
		"image: a\ncpuz: 1\n":                               "line 2: cpuz: unknown field",
		"image: a\nargs: /x\n":                              "line 2: args: is a text, but has to be a list",
		"image: {}\n":                                       "line 1: image: is an object, but has to be a text; put it in quotes",
		"ports:\n- port: 80\n- {port: \"81\"}\n":            "line 3: ports[1].port: is a text, but has to be a whole number of 32 bits",
		"x: &x {prt: 1}\nports: [{<<: *x}]":                 "line 1: ports[0].prt: unknown field",
		"spec: {}\n":                                        "line 1: spec: unknown field",
		"replicas: 1e10":                                    "line 1: replicas: is a number, but has to be a whole number of 32 bits",
		`{"env":[{"name":"A"},` + "\n" + `{"name":["B"]}]}`: "line 2: env[1].name: is a list, but has to be a text; put it in quotes",
		"replica: 1\nimge: a\nports: 8080\nlifecycle: {}\n": "line 1: replica: unknown field (did you mean replicas?); line 2: imge: unknown field (did you mean image?); line 3: ports: is a number, but has to be a list; line 4: lifecycle: unknown field; Kubernetes has it",
		"image: a\nimage: b\n":                              `line 2: the key "image" is there twice`,
		"image: a\n---\nimage: b\n":                         "a second document begins",
	} {
		_, err := appfile.Read([]byte(text))
		require.ErrorContains(t, err, says, text)
	}
}

// TestRead_RefusesYAMLBomb, such as one in the App of a source.
func TestRead_RefusesYAMLBomb(t *testing.T) {
	text := "image: &a " + strings.Repeat("x", 4<<10) + "\nargs: [" + strings.Repeat("*a,", 1300) + "*a]\n"
	require.Less(t, len(text), 9<<10)
	_, err := appfile.Read([]byte(text))
	require.ErrorContains(t, err, "aliases (*NAME) stand for more than")
	assert.True(t, decode.Exceeded(err))
	require.Error(t, appfile.Decode([]byte(text), &runnerapi.JobSpec{}))
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("image: a\nreplicas: 2\n"))
	f.Add([]byte("apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: web}\nspec: {image: a}\n"))
	f.Add([]byte("---\nimage: a\n---\nimage: b\n"))
	f.Add([]byte(`{"image":"a","image":"b"}`))
	f.Add([]byte("jobs:\n  - {name: a, image: b}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if len(text) > 4096 {
			return
		}
		if file, err := appfile.Read(text); err == nil {
			_ = file.Spec.Validate() // takes whatever was decoded
		}
		_ = appfile.Decode(text, &runnerapi.JobSpec{})
		_ = appfile.Decode(text, &runnerapi.PipelineSpec{})
	})
}
