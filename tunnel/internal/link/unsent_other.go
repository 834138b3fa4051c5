//go:build !linux

package link

func limitUnsent(uintptr) {}
