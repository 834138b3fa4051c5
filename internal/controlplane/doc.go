// Package controlplane is the operator's side: it registers agents by enrolment
// token, is their certificate authority, ends their tunnels, routes Runners to
// them and announces them over RabbitMQ.
//
// What it decides is in registry (who may be an agent), liveness (who is online)
// and admin (what the operator changes). What it speaks is in the wires:
// controlapi, tunnel/server and announce. It commands no agent: that is between
// Runners and agents, and passes through here encrypted.
package controlplane
