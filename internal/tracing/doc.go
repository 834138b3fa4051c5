// Package tracing sends OpenTelemetry traces to the destination in the standard variables
// (OTEL_EXPORTER_OTLP_ENDPOINT and related ones). Without these variables there is no exporter, no
// connection and no span.
//
// A trace goes from a Runner through the tunnel to the agent's calls of Kubernetes, by the header
// traceparent of W3C Trace Context. The parts in between (edge, frps) carry ciphertext and cannot
// see it.
//
// It is a leaf package: parties and programs may import it. Only this package sets up the SDK and
// its globals.
package tracing
