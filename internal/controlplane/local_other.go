//go:build !linux

package controlplane

import "os"

// userOf returns the control plane's own user: a control plane is released for Linux alone, and
// elsewhere the socket's mode has to do.
func userOf(int) (uint32, error) { return uint32(os.Geteuid()), nil }
