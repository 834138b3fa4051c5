// Package monitoring reads what the cluster's components for monitoring know: Prometheus, Loki and
// OpenCost. It installs none of them; internal/components does.
//
// No text of a Runner becomes a query: queries are made here, and values are quoted. What comes
// back is checked once more by its labels.
package monitoring
