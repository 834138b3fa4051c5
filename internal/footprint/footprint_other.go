//go:build !linux

package footprint

import "runtime/debug"

// Shrink gives heap back to the system.
func Shrink() error {
	debug.FreeOSMemory()
	return nil
}
