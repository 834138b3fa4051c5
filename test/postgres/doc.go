// Package postgres runs a private, real PostgreSQL for tests: TLS alone, with a CA
// of its own, a database with an owner for whoever asks for one. It needs neither
// systemd nor a container engine, ends with the process that started it, and
// leaves nothing behind.
//
// It is not for production: nothing is synced to the disk, for a test's server
// only has to survive its own crash and not the machine's.
package postgres
