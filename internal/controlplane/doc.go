// Package controlplane is the operator's side. It registers agents by enrolment token, is their
// certificate authority, terminates their tunnels, routes Runners to them and announces them over
// RabbitMQ.
//
// This package connects its parts and serves the HTTPS API. Its decisions are in enrolment (which
// agents exist), liveness (which are online) and operators (what the operator changes). Its
// protocols are in the wires: controlapi, tunnel/server and announce. It commands no agent:
// commands pass through it encrypted, between Runners and agents.
package controlplane
