// Package rollout writes the specs of Apps: deploy, scale, pause, resume, restart and rollback. It
// reports how each of these commands came out.
package rollout
