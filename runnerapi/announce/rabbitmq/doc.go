// Package rabbitmq keeps a connection to one of several brokers, and declares the exchange and the
// queues of announcements.
package rabbitmq
