// Package freeport finds addresses for the servers of tests.
package freeport

import (
	"net"
	"testing"
)

// Address returns an address of this machine on which nothing listens.
func Address(t testing.TB) string {
	t.Helper()
	return AddressAt(t, "127.0.0.1")
}

// AddressAt is Address with one of the machine's own IP addresses.
func AddressAt(t testing.TB, host string) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
