package webcerts_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

func openStore(t testing.TB) *store.Store { return storetest.Open(t, nil, postgres.SQLite) }

func TestStorage_Sealed(t *testing.T) {
	db, ctx := openStore(t), t.Context()
	s := &webcerts.Storage{DB: db, Key: ca.NewKey(), Holder: "one", Now: time.Now}
	for _, name := range []string{"a/b/c.key", "a/b/d.crt", "a/e"} {
		require.NoError(t, s.Store(ctx, name, []byte("secret of "+name)))
	}
	text, err := s.Load(ctx, "a/b/c.key")
	require.NoError(t, err)
	assert.Equal(t, "secret of a/b/c.key", string(text))
	raw, err := db.GatewayFile(ctx, "a/b/c.key")
	require.NoError(t, err)
	assert.NotContains(t, raw.Sealed, "secret")

	raw.Name = "a/e" // what was moved to another name is refused
	require.NoError(t, db.PutGatewayFile(ctx, raw))
	_, err = s.Load(ctx, "a/e")
	require.ErrorIs(t, err, ca.ErrSealed)
	_, err = (&webcerts.Storage{DB: db, Key: ca.NewKey(), Now: time.Now}).Load(ctx, "a/b/c.key")
	require.ErrorIs(t, err, ca.ErrSealed)
	require.ErrorContains(t, s.Store(ctx, "large", make([]byte, 1<<20)), "bytes are more than")

	names, err := s.List(ctx, "a", false)
	require.NoError(t, err)
	assert.Equal(t, []string{"a/b", "a/e"}, names)
	names, err = s.List(ctx, "a", true)
	require.NoError(t, err)
	assert.Equal(t, []string{"a/b/c.key", "a/b/d.crt", "a/e"}, names)
	_, err = s.List(ctx, "none", true)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for name, terminal := range map[string]bool{"a": false, "a/b": false, "a/b/c.key": true} {
		info, err := s.Stat(ctx, name)
		require.NoError(t, err)
		assert.Equal(t, terminal, info.IsTerminal, name)
		assert.True(t, s.Exists(ctx, name))
	}
	require.NoError(t, s.Delete(ctx, "a/b"))
	assert.False(t, s.Exists(ctx, "a/b/c.key"))
	_, err = s.Load(ctx, "a/b/c.key")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = s.Stat(ctx, "a/b")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestStorage_LockPerGateway(t *testing.T) {
	db, ctx := openStore(t), t.Context()
	one := &webcerts.Storage{DB: db, Holder: "one", Now: time.Now}
	two := &webcerts.Storage{DB: db, Holder: "two", Now: time.Now}
	require.NoError(t, one.Lock(ctx, "l"))
	require.NoError(t, one.RenewLockLease(ctx, "l", time.Minute))
	require.Error(t, two.RenewLockLease(ctx, "l", time.Minute))
	got := make(chan error, 1)
	go func() { got <- two.Lock(ctx, "l") }()
	require.NoError(t, one.Unlock(ctx, "l"))
	require.NoError(t, await.Receive(t, got, "the lock"))
	waiting, cancel := context.WithCancel(ctx)
	go func() { got <- one.Lock(waiting, "l") }()
	cancel()
	require.ErrorIs(t, await.Receive(t, got, "the end of waiting"), context.Canceled)
}

// TestStorage_LockPerCaller keeps the keeper and a handshake from ordering one certificate twice.
func TestStorage_LockPerCaller(t *testing.T) {
	s := &webcerts.Storage{DB: openStore(t), Holder: "one", Now: time.Now}
	require.NoError(t, s.Lock(t.Context(), "l"))
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Lock(short, "l"), context.DeadlineExceeded, "another caller has the lock")
	require.NoError(t, s.Lock(t.Context(), "another"))

	got := make(chan error, 1)
	go func() { got <- s.Lock(t.Context(), "l") }()
	require.NoError(t, s.Unlock(t.Context(), "l"))
	require.NoError(t, await.Receive(t, got, "the lock"))
	require.NoError(t, s.Unlock(t.Context(), "l"))
	require.NoError(t, s.Unlock(t.Context(), "l"), "a lock that is not held")
}

// handshake returns the certificate that a visitor gets.
func handshake(t *testing.T, cfg *tls.Config, roots *x509.CertPool, host string) (*x509.Certificate, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		far, err := ln.Accept()
		if err == nil {
			err = tls.Server(far, cfg).HandshakeContext(ctx)
			_ = far.Close()
		}
		done <- err
	}()
	near, err := (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
	require.NoError(t, err)
	client := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}})
	failed := client.HandshakeContext(ctx)
	_ = near.Close()
	_ = await.Receive(t, done, "the server's end")
	require.NoError(t, ln.Close())
	if failed != nil {
		return nil, failed
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

func rootsOf(t *testing.T, text []byte) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(text))
	return roots
}

// served has one host by name, and a wildcard.
func served(name string) string {
	_, parent, _ := strings.Cut(name, ".")
	switch {
	case name == "www.example.org":
		return name
	case parent == "apps.example.org":
		return "*." + parent
	}
	return ""
}

// TestInternalCA_SharedByGateways: two gateways have the same certificates. All names of a wildcard
// share one, so that visitors who invent names fill no table.
func TestInternalCA_SharedByGateways(t *testing.T) {
	db, key := openStore(t), ca.NewKey()
	gateway := func(name string) (*webcerts.Certificates, []byte) {
		storage := &webcerts.Storage{DB: db, Key: key, Holder: name, Now: time.Now}
		internal := &webcerts.Internal{Storage: storage, Now: time.Now}
		c := webcerts.New(webcerts.Config{Storage: storage, Internal: internal, Log: zerolog.Nop(), Served: served})
		t.Cleanup(c.Close)
		root, err := internal.Root(t.Context())
		require.NoError(t, err)
		return c, root
	}
	one, root := gateway("one")
	two, again := gateway("two")
	assert.Equal(t, root, again)
	roots := rootsOf(t, root)
	require.NoError(t, one.Ensure(t.Context(), "www.example.org"))
	first, err := handshake(t, one.TLS(), roots, "www.example.org")
	require.NoError(t, err)
	second, err := handshake(t, two.TLS(), roots, "WWW.example.org")
	require.NoError(t, err)
	assert.Equal(t, first.SerialNumber, second.SerialNumber)
	assert.Nil(t, one.Challenge())
	_, err = handshake(t, one.TLS(), roots, "other.example.org")
	require.Error(t, err)
	for i := range 20 {
		gateway := []*webcerts.Certificates{one, two}[i%2]
		invented, err := handshake(t, gateway.TLS(), roots, fmt.Sprintf("invented%d.apps.example.org", i))
		require.NoError(t, err)
		assert.Equal(t, []string{"*.apps.example.org"}, invented.DNSNames)
		if i > 0 {
			assert.Equal(t, first.SerialNumber, invented.SerialNumber)
		}
		first = invented
	}
}

func TestOwn_Reloaded(t *testing.T) {
	db := openStore(t)
	storage := &webcerts.Storage{DB: db, Key: ca.NewKey(), Holder: "one", Now: time.Now}
	dir := t.TempDir()
	c := webcerts.New(webcerts.Config{
		Storage: storage, Internal: &webcerts.Internal{Storage: storage, Now: time.Now}, Own: dir, Log: zerolog.Nop(), Served: served,
	})
	t.Cleanup(c.Close)
	require.NoError(t, c.ReadOwn(t.Context()), "there is none yet")
	put := func(name, text string, at time.Time) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(file, at, at))
	}
	write := func(name, host string, at time.Time) (roots *x509.CertPool) {
		cert, key, err := selfsigned.PEM(host)
		require.NoError(t, err)
		put(name+".crt", cert, at)
		put(name+".key", key, at)
		require.NoError(t, c.ReadOwn(t.Context()))
		require.NoError(t, c.ReadOwn(t.Context()))
		return rootsOf(t, []byte(cert))
	}
	old := write("apps", "*.apps.example.com", time.Now().Add(-time.Hour))
	assert.True(t, c.Covered("web-prod-shop.apps.example.com"))
	assert.False(t, c.Covered("www.example.org"))
	_, err := handshake(t, c.TLS(), old, "web-prod-shop.apps.example.com")
	require.NoError(t, err)
	fresh := write("apps", "*.apps.example.com", time.Now())
	_, err = handshake(t, c.TLS(), fresh, "web-prod-shop.apps.example.com")
	require.NoError(t, err)
	_, err = handshake(t, c.TLS(), old, "web-prod-shop.apps.example.com")
	require.Error(t, err)

	require.NoError(t, c.Ensure(t.Context(), "www.example.org"))
	shop := write("shop", "www.example.org", time.Now())
	_, err = handshake(t, c.TLS(), shop, "www.example.org")
	require.NoError(t, err, "the operator's comes before one that was obtained")
	put("bad.crt", "no certificate", time.Now())
	put("shop.key", "no key", time.Now().Add(time.Hour))
	err = c.ReadOwn(t.Context())
	require.ErrorContains(t, err, filepath.Join(dir, "bad.crt"))
	require.ErrorContains(t, err, filepath.Join(dir, "shop.crt"))
	assert.Equal(t, err, c.OwnFault())
	_, err = handshake(t, c.TLS(), shop, "www.example.org")
	require.NoError(t, err, "what cannot be read stays as it was")

	require.NoError(t, os.Remove(filepath.Join(dir, "bad.crt")))
	require.NoError(t, os.Remove(filepath.Join(dir, "shop.crt")))
	require.NoError(t, c.ReadOwn(t.Context()))
	require.NoError(t, c.OwnFault())
	_, err = handshake(t, c.TLS(), shop, "www.example.org")
	require.Error(t, err, "the one that was obtained is back")
}
