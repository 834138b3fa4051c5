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
		`OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" is not spoken here (fix: use http/protobuf`: {endpoint, here, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		`OTEL_TRACES_EXPORTER: "zipkin" is neither otlp nor none (fix: `:                 {endpoint, here, "OTEL_TRACES_EXPORTER", "zipkin"},
	} {
		_, err := tracing.Start(t.Context(), "test", "1", env(vars...), zerolog.Nop())
		require.ErrorContains(t, err, want)
	}
}

func TestStop_FlushesSpans(t *testing.T) {
	collector := otlptest.New(t)
	traces, err := tracing.Start(t.Context(), "pipeops-test", "1.2.3", env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL), zerolog.Nop())
	require.NoError(t, err)
	_, done := span.Begin(t.Context(), traces.Provider(), "work")
	done(errors.New("canary"))
	traces.Stop(t.Context())
	require.Len(t, collector.Spans(), 1)
	assert.Equal(t, "pipeops-test", collector.Spans()[0].Service)
	assert.Equal(t, "work", collector.Spans()[0].Name)
	assert.False(t, collector.Holds("canary"))
	assert.Empty(t, collector.Bad())
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
	assert.LessOrEqual(t, strings.Count(log.String(), "traces do not reach the collector"), 1)
}
