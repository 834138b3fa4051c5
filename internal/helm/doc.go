// Package helm maintains Helm releases in the managed namespaces, with the Helm SDK and within the
// cluster owner's bounds. It runs one command for a release at a time, and an aborted command never
// blocks a release (docs/adr/0039).
//
// Nothing of Helm's is set up before the first command. The package does not use Helm's own code
// for fetching charts, which keeps files in $HOME and bounds nothing.
package helm
