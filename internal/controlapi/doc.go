// Package controlapi is the wire between an agent and the control plane, over HTTPS: register,
// renew, heartbeat and events. It contains the types, the error codes, the HTTP handler that the
// control plane mounts and the client that the agent uses.
//
// It does not depend on databases, certificate authorities or Kubernetes: the Backend interface
// hides what the calls do.
package controlapi
