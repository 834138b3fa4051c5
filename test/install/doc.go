// Package install tests scripts/install.sh for real: on booted Debian machines,
// from nothing to a registered agent. What it would download comes from a server
// of the tests; k3s is a fake (fakek3s) that starts the project's test cluster.
// Decisions for other distributions are tested by recorded facts.
package install
