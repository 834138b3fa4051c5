// Package app makes the cluster match its Apps. It owns the App resource (apps.pipeops.io), the
// objects made from it, and the reports about it.
//
// The desired state is in the cluster, in the App's spec, and nowhere else: an Engine holds nothing
// that a restart would lose. Commands write specs (deploy.go, scale.go, ...). The reconciler makes
// the cluster follow (reconcile.go, children.go, apply.go) and records what it observes (status.go
// and the package diagnose). The announcer reports to the control plane (announce.go).
//
// The package does not serve HTTP, knows nothing of tunnels, and does not read Secrets.
package app
