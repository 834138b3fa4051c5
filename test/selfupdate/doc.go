// Package selfupdate tests the agent's self-update with real programs of several versions: as a
// service of a machine, and as the pods of a cluster.
package selfupdate
