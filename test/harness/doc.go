// Package harness assembles the whole system from its real parts, for the demo and the end-to-end
// tests: a Kubernetes, a RabbitMQ, the control plane as a process, the agent as a pod, the Runner
// by its command line. Nothing here is shipped.
package harness
