// Package broker runs a private, real RabbitMQ for tests and for the demo: one per name, several
// side by side, without systemd or a container engine. It serves AMQP over TLS on loopback, and
// Down leaves nothing behind.
//
// It is not for production: one node, small limits, everything in a cache folder.
package broker
