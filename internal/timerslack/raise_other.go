//go:build !linux

package timerslack

// Raise does nothing: the setting is Linux'.
func Raise() {}
