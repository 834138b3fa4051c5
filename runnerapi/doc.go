// Package runnerapi is the wire between a Runner and an agent: the types,
// the error codes, the HTTP server that the agent mounts on its tunnel and the
// client that a Runner service imports.
//
// It knows nothing of Kubernetes clients, tunnels or the control plane: what
// the calls do is behind the interfaces in backend.go.
package runnerapi
