//go:build !linux

package agent

import "runtime/debug"

// shrink gives heap back to the system.
func shrink() error {
	debug.FreeOSMemory()
	return nil
}
