package runnerapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestWarnings_DoubledDollars(t *testing.T) {
	env := []runnerapi.EnvVar{{Name: "A", Value: "pa$$w$rd"}, {Name: "B", Value: "$$(A) $(A)"}}
	init := []runnerapi.InitContainer{{Args: []string{"a", "$$$$"}}}
	const end = ": Kubernetes takes $$ for one $; write $$$$ for two"
	want := []string{`command[0] runs as "echo $"` + end, `env[0].value (A) runs as "pa$w$rd"` + end, `initContainers[0].args[1] runs as "$$"` + end}
	assert.Equal(t, want, runnerapi.JobSpec{Command: []string{"echo $$"}, Surroundings: runnerapi.Surroundings{Env: env}, InitContainers: init}.AppSpec().Warnings())
	jobs := []runnerapi.PipelineJob{{Args: []string{"$$"}}}
	assert.Equal(t, []string{`jobs[0].args[0] runs as "$"` + end}, runnerapi.AppSpec{Env: env[1:], Jobs: jobs}.Warnings())
}

func TestReadRouteAnnotations(t *testing.T) {
	const answer, nginx, mode = runnerapi.AnnotationAnswer, "nginx.ingress.kubernetes.io/proxy-read-timeout", runnerapi.AnnotationMode
	const ofAnswer, ofNginx = ": write a duration such as 90s, from 1s to 1h", ": write seconds from 1 to 3600, or set " + answer
	for _, c := range []struct {
		annotations map[string]string
		want        runnerapi.RouteAnnotations
	}{
		{map[string]string{answer: "90.5s", mode: "tunnel"}, runnerapi.RouteAnnotations{Within: 90 * time.Second, Tunnel: true}},
		{map[string]string{answer: "5m", nginx: "60", "example.com/a": "b"}, runnerapi.RouteAnnotations{Within: 5 * time.Minute}},
		{map[string]string{nginx: "3600"}, runnerapi.RouteAnnotations{Within: time.Hour}},
		{map[string]string{answer: "90", nginx: "60"}, runnerapi.RouteAnnotations{Within: time.Minute, Warnings: []string{"annotation " + answer + `: "90" is ignored` + ofAnswer}}},
		{map[string]string{answer: "2h", nginx: "90s"}, runnerapi.RouteAnnotations{Warnings: []string{
			"annotation " + nginx + `: "90s" is ignored` + ofNginx, "annotation " + answer + `: "2h" is ignored` + ofAnswer,
		}}},
		{map[string]string{mode: "Tunnel"}, runnerapi.RouteAnnotations{Warnings: []string{"annotation " + mode + `: "Tunnel" is ignored: write tunnel, or remove the annotation`}}},
	} {
		assert.Equal(t, c.want, runnerapi.ReadRouteAnnotations(c.annotations))
		assert.Equal(t, c.want.Warnings, runnerapi.AppSpec{Ingress: &runnerapi.Ingress{Annotations: c.annotations}}.Warnings())
	}
}
