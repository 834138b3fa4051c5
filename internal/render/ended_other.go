//go:build !linux

package render

import "strings"

func outOfMemory(_ error, said string) bool { return strings.Contains(said, "out of memory") }

func killed(error) bool { return false }
