// Package selfupdate tests the agent's update of itself with real programs of several
// versions: as a service of a machine, and as the pods of a cluster.
package selfupdate
