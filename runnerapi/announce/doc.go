// Package announce is what a Runner reads of the control plane: which agents exist, and what
// happens to them. A Runner starts from a snapshot over HTTPS ([SnapshotClient]) and follows
// announcements over RabbitMQ, CloudEvents on a topic exchange ([Consumer]); a [Directory] does
// both.
//
// The packages below it are the connection to RabbitMQ with its queues, and the control plane's
// ends: publish for RabbitMQ, and server for HTTPS.
//
// The package carries no commands: Runners send those to agents over the Runner API. It stores
// nothing on disk: the control plane owns the publisher's outbox, and a [Directory] is rebuilt from
// a snapshot.
package announce
