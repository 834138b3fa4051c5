package agent_test

import (
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/internal/tracing"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/otlptest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// traced is a program's way to the collector, as its main sets it up.
func traced(t *testing.T, program string) trace.TracerProvider {
	t.Helper()
	traces, err := tracing.Start(t.Context(), program, "test", os.Getenv, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	require.NotNil(t, traces)
	t.Cleanup(func() { traces.Stop(t.Context()) })
	return traces.Provider()
}

// TestTrace_RunnerToKubernetes sends commands by a real client through edge, tunnel and agent to a
// real API server, and reads the spans from a fake collector that decodes real OTLP.
func TestTrace_RunnerToKubernetes(t *testing.T) {
	const canary, place = "canary-4f1c", "traced"
	collector := otlptest.New(t)
	p := planetest.Start(t, func(c *controlplane.Config) { c.Tracer = traced(t, "pipeops-controlplane") })
	opts := optionsOf(t, p, t.TempDir(), token(t, p))
	opts.Tracer = traced(t, "pipeops-agent")
	launch(t, opts)
	c := visitor(t, p, "tracer", "", p.AwaitOnline(t, time.Time{}))

	ctx, done := span.Begin(t.Context(), traced(t, "pipeops-runner"), "pipeops-runner deploy")
	_, err := c.Namespaces().Set(ctx, place, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	key := runnerapi.Key{Namespace: place, Name: "web"}
	_, err = c.Secrets().Set(ctx, key, runnerapi.SecretSpec{Data: map[string]string{"PASSWORD": canary}}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = c.Apps().Deploy(ctx, key, runnerapi.AppSpec{Image: "registry.example.com/" + canary + ":1", Env: []runnerapi.EnvVar{{Name: "TOKEN", Value: canary}}}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	done(nil)

	var root otlptest.Span
	await.Until(t, "the command's spans", func() bool {
		var ok bool
		root, ok = collector.Find(nil, "pipeops-runner deploy")
		return ok
	})
	for call, request := range map[string]string{"put-secret": "kubernetes POST secrets", "put-app": "kubernetes POST apps"} {
		chain := lineage(t, collector, root, "pipeops-runner", call, "pipeops-agent", call, "pipeops-agent", request)
		assert.Equal(t, root.SpanId, chain[0].ParentSpanId, call)
		assert.Equal(t, chain[0].SpanId, chain[1].ParentSpanId, "%s: the agent's span is under the Runner's", call)
	}
	await.Until(t, "the reconciler's part, in the same trace", func() bool {
		reconciled, ok := collector.Find(root.TraceId, "reconcile App")
		if !ok {
			return false
		}
		for _, s := range collector.Spans() {
			if s.Name == "kubernetes PATCH deployments" && string(s.ParentSpanId) == string(reconciled.SpanId) {
				return true
			}
		}
		return false
	})
	for beat, route := range map[string]string{"heartbeat": "/v1/agent/heartbeat", "register": "/v1/agents/register"} {
		await.Until(t, "a "+beat+"'s two ends", func() bool {
			sent, ok := collector.Find(nil, beat)
			if !ok {
				return false
			}
			taken, ok := collector.Find(sent.TraceId, route)
			return ok && taken.Service == "pipeops-controlplane" && string(taken.ParentSpanId) == string(sent.SpanId)
		})
	}
	assert.Empty(t, collector.Bad())
	for _, text := range []string{canary, place, "PASSWORD", "tracer"} {
		assert.False(t, collector.Holds(text), "%q is told", text)
	}
}

// lineage are the spans of a trace by service and name, each of them under the one before
// or, of Kubernetes' requests, somewhere under it.
func lineage(t *testing.T, c *otlptest.Collector, root otlptest.Span, names ...string) []otlptest.Span {
	t.Helper()
	var chain []otlptest.Span
	await.Until(t, "all of a call's spans", func() bool {
		chain = nil
		above := root
		for i := 0; i < len(names); i += 2 {
			found := false
			for _, s := range c.Spans() {
				if s.Service == names[i] && s.Name == names[i+1] && string(s.TraceId) == string(root.TraceId) && string(s.ParentSpanId) == string(above.SpanId) {
					chain, above, found = append(chain, s), s, true
					break
				}
			}
			if !found {
				return false
			}
		}
		return true
	})
	return chain
}
