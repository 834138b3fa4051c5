//go:build !linux

// Package cage confines the process that renders, on Linux.
package cage

// Enter does nothing: the time and GOMEMLIMIT alone bound the process.
func Enter(int64) error { return nil }

// Missing returns the parts that this system does not offer, with reasons.
func Missing() []string { return []string{"Landlock and seccomp (only Linux has them)"} }

// HasCgo returns false: it matters on Linux alone.
func HasCgo() bool { return false }
