// Package acmetest runs pebble, the ACME CA with which Let's Encrypt tests.
package acmetest

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"testing"

	pebbleca "github.com/letsencrypt/pebble/v2/ca"
	pebbledb "github.com/letsencrypt/pebble/v2/db"
	pebbleva "github.com/letsencrypt/pebble/v2/va"
	pebblewfe "github.com/letsencrypt/pebble/v2/wfe"
	"github.com/stretchr/testify/require"
)

// CA is a running pebble.
type CA struct {
	Directory string         // the URL of its directory
	Roots     *x509.CertPool // by which a client trusts the directory
	Issuers   *x509.CertPool // by which a visitor trusts its certificates
}

// Options say where pebble is, and where it looks for the hosts of challenges.
type Options struct {
	// Host is an address of this machine. Without one, pebble listens on the loopback interface.
	Host string
	// Certificate is the directory's. Without one, it is that of httptest, for 127.0.0.1.
	Certificate *tls.Certificate
	// DNS is the address of the DNS server.
	DNS string
	// HTTPPort and HTTPSPort are those to which pebble connects.
	HTTPPort, HTTPSPort int
	// EABKeyID and EABKey, an HMAC key in base64url, are what accounts have to be bound by; empty
	// for none.
	EABKeyID, EABKey string
}

// Start runs pebble until the test ends. It neither waits before it validates, nor refuses nonces
// at random.
func Start(t *testing.T, o Options) CA {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	quiet := log.New(io.Discard, "", 0)
	db := pebbledb.NewMemoryStore()
	authority := pebbleca.New(quiet, db, "", "ecdsa", 0, 1, map[string]pebbleca.Profile{"default": {Description: "default"}})
	validator := pebbleva.New(quiet, o.HTTPPort, o.HTTPSPort, true, o.DNS, db)
	if o.EABKeyID != "" {
		require.NoError(t, db.AddExternalAccountKeyByID(o.EABKeyID, o.EABKey))
	}
	front := pebblewfe.New(quiet, db, validator, authority, nil, true, o.EABKeyID != "", 0, 0)
	srv := httptest.NewUnstartedServer(front.Handler())
	srv.Config.ErrorLog = quiet
	if o.Host != "" {
		require.NoError(t, srv.Listener.Close())
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(o.Host, "0"))
		require.NoError(t, err)
		srv.Listener = listener
	}
	if o.Certificate != nil {
		srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*o.Certificate}}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := CA{Directory: srv.URL + pebblewfe.DirectoryPath, Roots: x509.NewCertPool(), Issuers: x509.NewCertPool()}
	ca.Roots.AddCert(srv.Certificate())
	ca.Issuers.AddCert(authority.GetRootCert(0).Cert)
	return ca
}
