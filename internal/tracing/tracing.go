package tracing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	// maxQueue bounds the spans that wait for a collector that is away; more are dropped.
	maxQueue = 512
	maxBatch = 128
	// maxAttribute bounds an attribute's text, in characters.
	maxAttribute = 256
	// stopTimeout bounds how long the last spans keep a program from ending.
	stopTimeout = 3 * time.Second
)

// Tracing is where spans go. A nil one is off.
type Tracing struct {
	provider *sdktrace.TracerProvider
	log      zerolog.Logger
}

// Start reads the standard variables. It returns nil when they ask for no traces, and Stop may be
// called of that, too.
func Start(ctx context.Context, service, version string, getenv func(string) string, log zerolog.Logger) (*Tracing, error) {
	on, err := wanted(getenv)
	if err != nil || !on {
		return nil, err
	}
	protocol, err := protocolOf(getenv)
	if err != nil {
		return nil, err
	}
	exporter, err := exporterFor(ctx, protocol, getenv)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithService(), // with an ID of the instance
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w (fix: write it as key=value,key=value)", err)
	}
	// The SDK reports its failures nowhere else. Collectors' answers may be long.
	told := seldom(log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(told))
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	return &Tracing{log: log, provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(maxQueue), sdktrace.WithMaxExportBatchSize(maxBatch)),
		sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits),
	)}, nil
}

// wanted reports whether the variables ask for traces. What we cannot do is an error: silence would
// look like traffic that never came.
func wanted(getenv func(string) string) (bool, error) {
	if off, err := strconv.ParseBool(getenv("OTEL_SDK_DISABLED")); err == nil && off {
		return false, nil
	}
	switch to := getenv("OTEL_TRACES_EXPORTER"); to {
	case "", "otlp":
	case "none":
		return false, nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is neither otlp nor none (fix: leave it out)", clip(to))
	}
	if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, nil
	}
	return true, nil
}

// The values of OTEL_EXPORTER_OTLP_PROTOCOL, by OpenTelemetry's specification of exporters.
const (
	protocolHTTP = "http/protobuf" // its default
	protocolGRPC = "grpc"
)

// protocolOf returns the protocol of the collector. The variable of traces overrides the general
// one.
func protocolOf(getenv func(string) string) (string, error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch p := getenv(name); p {
		case "":
		case protocolHTTP, protocolGRPC:
			return p, nil
		default:
			return "", fmt.Errorf("%s: %q is not supported (fix: use http/protobuf or grpc: ports 4318 and 4317 of most collectors)", name, clip(p))
		}
	}
	return protocolHTTP, nil
}

// exporterFor connects to the collector when there are spans to send. The exporters read the other
// variables themselves, such as endpoint and headers, but for the files of certificates.
func exporterFor(ctx context.Context, protocol string, getenv settings) (exporter sdktrace.SpanExporter, err error) {
	source, err := getenv.files()
	if err != nil {
		return nil, err
	}
	if protocol == protocolGRPC {
		exporter, err = otlptracegrpc.New(ctx, overGRPC(source)...)
	} else {
		exporter, err = otlptracehttp.New(ctx, getenv.overHTTP(source)...)
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_*: %w", err)
	}
	return exporter, nil
}

func clip(text string) string { return text[:min(len(text), 64)] }

// seldom logs the SDK's complaints, once a minute at most: an unreachable collector must not fill
// the log.
func seldom(log zerolog.Logger) func(error) {
	sampler := log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	return func(err error) {
		sampler.Warn().Str("error", strings.ToValidUTF8(clip(err.Error()), "?")).Msg("dropping traces: the collector is unreachable")
	}
}

// Provider returns the provider of spans; nil if tracing is off.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Stop sends the remaining spans within a short time, even if its context has ended. It may be
// called on a nil Tracing.
func (t *Tracing) Stop(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Debug().Msg("failed to send the last traces to the collector")
	}
}
