// Package install tests scripts/install.sh for real: on booted Debian machines, from nothing to a
// registered agent. A server of the tests replaces the downloads. k3s is a fake (fakek3s) that
// starts the project's test cluster. Decisions for other distributions are tested with recorded
// facts.
package install
