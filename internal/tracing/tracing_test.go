package tracing_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/internal/tracing"
	"github.com/pipeops/pipeops-vm-agent/test/otlptest"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestStart_OffByDefault(t *testing.T) {
	const endpoint, here = "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"
	for name, vars := range map[string][]string{
		"nothing": {}, "disabled": {endpoint, here, "OTEL_SDK_DISABLED", "true"}, "no exporter": {endpoint, here, "OTEL_TRACES_EXPORTER", "none"},
	} {
		traces, err := tracing.Start(t.Context(), "test", "1", env(vars...), zerolog.Nop())
		require.NoError(t, err, name)
		assert.Nil(t, traces, name)
		assert.Nil(t, traces.Provider(), name)
		traces.Stop(t.Context())
	}
}

func TestStart_RefusesUnsupported(t *testing.T) {
	const endpoint, here = "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"
	for want, vars := range map[string][]string{
		`OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is not supported (fix: use http/protobuf or grpc`: {endpoint, here, "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"},
		`OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "udp" is not supported`:                                {endpoint, here, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "udp", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		`OTEL_TRACES_EXPORTER: "zipkin" is neither otlp nor none (fix: `:                            {endpoint, here, "OTEL_TRACES_EXPORTER", "zipkin"},
	} {
		_, err := tracing.Start(t.Context(), "test", "1", env(vars...), zerolog.Nop())
		require.ErrorContains(t, err, want)
	}
}

func TestStop_FlushesSpans(t *testing.T) {
	for name, c := range map[string]struct {
		start func(*testing.T) *otlptest.Collector
		vars  []string
	}{
		"default":   {otlptest.New, nil},
		"http":      {otlptest.New, []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}},
		"grpc":      {otlptest.NewGRPC, []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}},
		"of traces": {otlptest.NewGRPC, []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"}},
	} {
		t.Run(name, func(t *testing.T) {
			collector := c.start(t)
			traces, err := tracing.Start(t.Context(), "pipeops-test", "1.2.3", env(append(c.vars, "OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)...), zerolog.Nop())
			require.NoError(t, err)
			_, done := span.Begin(t.Context(), traces.Provider(), "work")
			done(errors.New("canary"))
			traces.Stop(t.Context())
			require.Len(t, collector.Spans(), 1)
			got := collector.Spans()[0]
			assert.Equal(t, "pipeops-test", got.Service)
			assert.Equal(t, "work", got.Name)
			assert.Equal(t, "1.2.3", got.About("service.version"))
			assert.Equal(t, "opentelemetry", got.About("telemetry.sdk.name"))
			assert.NotEmpty(t, got.About("service.instance.id"))
			assert.False(t, collector.Holds("canary"))
			assert.Empty(t, collector.Bad())
		})
	}
}

// TestStop_CollectorUnreachable costs no more than a line in the log.
func TestStop_CollectorUnreachable(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
	var log strings.Builder
	traces, err := tracing.Start(t.Context(), "test", "1", env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), zerolog.New(&log))
	require.NoError(t, err)
	for range 2000 { // more than wait
		_, done := span.Begin(t.Context(), traces.Provider(), "work")
		done(nil)
	}
	traces.Stop(t.Context())
	assert.LessOrEqual(t, strings.Count(log.String(), "dropping traces"), 1)
}
