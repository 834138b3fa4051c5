// Package controller makes the cluster follow the specs of Apps, and writes into their status what
// it observes.
package controller
