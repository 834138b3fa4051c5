// Package controlapi is the wire between an agent and the control plane, over
// HTTPS: register, renew, heartbeat and events. It holds the types, the error
// codes, the HTTP handler that the control plane mounts and the client that
// the agent uses.
//
// It knows nothing of databases, certificates' making or Kubernetes: what the
// calls do is behind the Backend interface.
package controlapi
