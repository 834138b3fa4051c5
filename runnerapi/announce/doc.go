// Package announce is the wire between the control plane and its Runners about which agents exist
// and what happens to them. It consists of announcements over RabbitMQ (CloudEvents on a topic
// exchange) and the snapshot over HTTPS from which a Runner starts. The control plane's own
// consumers read the same exchange.
//
// Both ends are here: [Publisher] and [SnapshotHandler] for the control plane, [Consumer],
// [SnapshotClient] and [Directory] for its readers.
//
// The package carries no commands: Runners send those to agents over the Runner API. It stores
// nothing on disk: the control plane owns the publisher's outbox, and a [Directory] is rebuilt from
// a snapshot.
package announce
