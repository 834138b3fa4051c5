// Package workload generates the Kubernetes objects that an App becomes, and reads what their
// controllers report.
package workload
