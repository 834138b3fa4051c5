// Package broker runs a private, real RabbitMQ for tests and for the demo, without systemd or a
// container engine. It serves AMQP over TLS on loopback, ends with the process that started it, and
// leaves nothing behind.
//
// It is not for production: one node, small limits, everything in a cache folder.
package broker
