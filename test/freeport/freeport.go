// Package freeport finds addresses for the servers of tests.
package freeport

import (
	"net"
	"testing"
)

// Address returns an address of this machine on which nothing listens.
func Address(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
