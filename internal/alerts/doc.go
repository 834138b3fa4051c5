// Package alerts receives what the cluster's Alertmanager sends, and makes events of it. It keeps
// no alert: Alertmanager sends each one again until it was taken.
package alerts
