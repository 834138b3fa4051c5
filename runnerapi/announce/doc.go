// Package announce is the wire between the control plane and its Runners that
// says which agents there are and what happens to them: announcements over
// RabbitMQ (CloudEvents on a topic exchange) plus the snapshot over HTTPS that a
// Runner starts from. The control plane's own consumers read the same exchange.
//
// Both ends are here: [Publisher] and [SnapshotHandler] for the control plane,
// [Consumer], [SnapshotClient] and [Directory] for whoever listens.
//
// It carries no commands: those go from the Runner to the agent over the Runner
// API. It keeps nothing on disk: the publisher's outbox is the control plane's,
// and a [Directory] is rebuilt from a snapshot.
package announce
