//go:build !linux

package mux

import "runtime"

// yield gives the processor to whoever else wants it in this process.
func yield() { runtime.Gosched() }
