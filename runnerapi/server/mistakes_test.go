package server_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// The message has what was meant.
func TestValidate_RefusesMemoryWithoutUnit(t *testing.T) {
	c := runnertest.Start(t, runnertest.NewBackend()).Client()
	of := func(amount string) runnerapi.Resources {
		return runnerapi.Resources{Requests: runnerapi.ResourceAmounts{Memory: amount}}
	}
	for field, send := range map[string]func(context.Context, string) error{
		"resources.requests.memory": func(ctx context.Context, amount string) error {
			_, err := c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "a", Resources: of(amount)}, runnerapi.WriteOptions{})
			return err
		},
		"initContainers[0].resources.requests.memory": func(ctx context.Context, amount string) error {
			spec := runnerapi.AppSpec{Image: "a", InitContainers: []runnerapi.InitContainer{{Name: "prepare", Resources: of(amount)}}}
			_, err := c.Apps().Deploy(ctx, web, spec, runnerapi.WriteOptions{})
			return err
		},
		"jobs[0].resources.requests.memory": func(ctx context.Context, amount string) error {
			spec := runnerapi.PipelineSpec{Jobs: []runnerapi.PipelineJob{{Name: "test", Image: "a", Resources: of(amount)}}}
			_, err := c.Pipelines().Run(ctx, runnerapi.Key{Namespace: "production", Name: "release"}, spec, runnerapi.WriteOptions{})
			return err
		},
		"quota.requests.memory": func(ctx context.Context, amount string) error {
			quota := &runnerapi.NamespaceQuota{Requests: of(amount).Requests}
			_, err := c.Namespaces().Set(ctx, "staging", runnerapi.NamespaceSpec{Quota: quota}, runnerapi.WriteOptions{})
			return err
		},
		"defaultLimits.requests.memory": func(ctx context.Context, amount string) error {
			limits := &runnerapi.NamespaceDefaults{Requests: of(amount).Requests}
			_, err := c.Namespaces().Set(ctx, "staging", runnerapi.NamespaceSpec{Limits: limits}, runnerapi.WriteOptions{})
			return err
		},
		"build.resources.requests.memory": func(ctx context.Context, amount string) error {
			build := &runnerapi.SourceBuild{BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/web", Resources: of(amount)}}
			spec := runnerapi.SourceSpec{URL: "https://git.example.com/web.git", Type: runnerapi.SourceApp, Path: "app.yaml", Build: build}
			_, err := c.Sources().Set(ctx, web, spec, runnerapi.WriteOptions{})
			return err
		},
	} {
		t.Run(field, func(t *testing.T) {
			for amount, says := range map[string]string{"64": `"64" is 64 bytes, which no program runs in: write "64Mi"`, "512k": `"512k" is less than 1Mi`} {
				known := &runnerapi.Error{}
				require.ErrorAs(t, send(ctxFor(t), amount), &known)
				assert.Equal(t, runnerapi.CodeInvalid, known.Code)
				assert.Equal(t, field, known.Field)
				assert.Contains(t, known.Detail, says)
			}
			for _, amount := range []string{"1Mi", "67108864", "0"} {
				require.NoError(t, send(ctxFor(t), amount))
			}
		})
	}
}
