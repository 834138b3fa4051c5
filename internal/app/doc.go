// Package app makes the cluster match its Apps. An Engine joins the packages below this one, each
// of which has one concern, and serves reads of Apps.
//
// The desired state is in the cluster, in the App's spec (v1alpha1), and nowhere else: an Engine
// holds nothing that a restart would lose. Commands write specs (rollout). The controller makes the
// cluster follow (controller, workload, apply) and records what it observes (evidence, diagnose).
// The sender of events reports to the control plane (events).
//
// These packages do not serve HTTP and know nothing of tunnels. Of Secrets they read files of users
// (ingress), and of no other.
package app

//go:generate go tool -modfile=../tools/go.mod controller-gen object paths=./v1alpha1
//go:generate go test ./crd -run UpToDate -update
