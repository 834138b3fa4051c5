// Package helm keeps Helm releases in the namespaces that the agent manages: what
// the Helm SDK does, within the customer's bounds, one command for a release at a
// time, and never wedged by a command that broke off (docs/adr/0039).
//
// Nothing of Helm's is set up before the first command. Helm's own programs for
// fetching charts are not used: they keep files in $HOME, and bound nothing.
package helm
