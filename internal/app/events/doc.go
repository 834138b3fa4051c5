// Package events reports the changes of Apps to the control plane, in order and at least once.
package events
