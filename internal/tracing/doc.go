// Package tracing sends OpenTelemetry traces where the standard variables
// (OTEL_EXPORTER_OTLP_ENDPOINT and its kin) say, and makes none where they say nothing: then
// there is no exporter, no connection and no span.
//
// A trace goes from a Runner through the tunnel to the agent's calls of Kubernetes, by
// the header traceparent of W3C Trace Context. What is between (edge, frps) carries
// ciphertext and cannot see it.
//
// It is a leaf: parties and programs may import it. It alone sets up the SDK, and holds
// what the SDK has of globals.
package tracing
