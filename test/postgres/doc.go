// Package postgres runs a private, real PostgreSQL for tests: TLS only, with its own CA, and a
// database with an owner on request. It needs neither systemd nor a container engine, ends with the
// process that started it, and leaves nothing behind.
//
// It is not for production: nothing is synced to the disk, because a test's server only has to
// survive its own crash and not the machine's.
package postgres
