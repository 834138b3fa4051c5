// Package runnerapi is the wire between a Runner and an agent: the types, the error codes, the HTTP
// server that the agent mounts on its tunnel, and the client that a Runner service imports.
//
// The package does not depend on Kubernetes clients, tunnels or the control plane: the interfaces
// in backend.go hide what the calls do.
package runnerapi
