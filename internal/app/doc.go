// Package app keeps Apps true: it owns the App resource (apps.pipeops.io), what
// is made from one, and what is said of one.
//
// The desired state lives in the cluster, in the App's spec, and nowhere else:
// an Engine holds nothing that a restart would lose. Commands write specs
// (deploy.go, scale.go, ...), the reconciler makes the cluster follow
// (reconcile.go, children.go, apply.go) and says what it sees (status.go and the
// package diagnose), and the announcer tells the outside (announce.go).
//
// It does not serve HTTP, knows nothing of tunnels, and touches no Secret.
package app
