//go:build !unix

package server

import "syscall"

type socket struct{}

func newSocket(syscall.Conn) *socket { return nil }

func (*socket) tryWrite([]byte) int { return 0 }
