package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// hosted is a database on the server.
func hosted(t *testing.T) *postgres.Database {
	t.Helper()
	return server.Database(t)
}

func openHosted(t *testing.T, d *postgres.Database) *store.Store {
	t.Helper()
	s, err := store.OpenPostgres(t.Context(), store.Postgres{URL: d.URL(), Log: zerolog.Nop()})
	return closing(t, s, err)
}

// changed gives the URL other parameters.
func changed(t *testing.T, d *postgres.Database, change func(*url.URL, url.Values)) string {
	t.Helper()
	u, err := url.Parse(d.URL())
	require.NoError(t, err)
	v := u.Query()
	change(u, v)
	u.RawQuery = v.Encode()
	return u.String()
}

func TestPostgres_VerifiesServer(t *testing.T) {
	t.Parallel()
	d := hosted(t)
	plain := changed(t, d, func(_ *url.URL, v url.Values) { v.Del("sslmode"); v.Del("sslrootcert") })
	_, err := store.OpenPostgres(t.Context(), store.Postgres{URL: plain})
	require.ErrorContains(t, err, "certificate")
	assert.NotContains(t, err.Error(), d.Password)

	s, err := store.OpenPostgres(t.Context(), store.Postgres{URL: plain, CAFile: server.Server(t).CAFile()})
	closing(t, s, err)
	otherName := changed(t, d, func(u *url.URL, _ url.Values) { u.Host = "127.0.0.2:" + u.Port() })
	_, err = store.OpenPostgres(t.Context(), store.Postgres{URL: otherName})
	require.Error(t, err)
	s, err = store.OpenPostgres(t.Context(), store.Postgres{URL: changed(t, d, func(_ *url.URL, v url.Values) {
		v.Del("sslrootcert")
		v.Set("sslmode", "require")
	})})
	closing(t, s, err)
}

func TestPostgres_HidesPassword(t *testing.T) {
	t.Parallel()
	d := hosted(t)
	p := store.Postgres{URL: changed(t, d, func(u *url.URL, _ url.Values) { u.User = url.UserPassword(d.Name, "hunter2") })}
	_, err := store.OpenPostgres(t.Context(), p)
	require.ErrorContains(t, err, "password authentication failed")
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %#v", p, p, p)} {
		assert.Contains(t, text, d.Name)
		assert.NotContains(t, text, "hunter2")
	}
	s, err := store.OpenPostgres(t.Context(), store.Postgres{URL: d.URLWithoutPassword(), Password: d.Password})
	closing(t, s, err)
}

func TestPostgres_RefusesEncoding(t *testing.T) {
	t.Parallel()
	d := hosted(t)
	require.NoError(t, server.Server(t).Run(t.Context(), `DROP DATABASE `+d.Name,
		`CREATE DATABASE `+d.Name+` OWNER `+d.Name+` ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0`))
	_, err := store.OpenPostgres(t.Context(), store.Postgres{URL: d.URL()})
	require.ErrorContains(t, err, "SQL_ASCII; make one with ENCODING 'UTF8'")
}

func TestServe_ClaimsDatabase(t *testing.T) {
	t.Parallel()
	d, ctx := hosted(t), t.Context()
	first, err := store.OpenPostgres(ctx, store.Postgres{URL: d.URL()})
	require.NoError(t, err)
	require.NoError(t, first.Serve(ctx))
	second := openHosted(t, d)
	require.ErrorIs(t, second.Serve(ctx), store.ErrServed)
	require.NoError(t, second.PutSetting(ctx, "a", "b"), "administering needs no claim")
	require.NoError(t, first.Close())
	require.NoError(t, second.Serve(ctx))
}

// TestPostgres_Reconnects cuts all connections: the claim and the notifications come back.
func TestPostgres_Reconnects(t *testing.T) {
	t.Parallel()
	d, ctx := hosted(t), t.Context()
	serve, cli := openHosted(t, d), openHosted(t, d)
	require.NoError(t, serve.Serve(ctx))
	heard := make(chan struct{}, 1000)
	await.Background(t, "Watch", func(ctx context.Context) error {
		return serve.Watch(ctx, time.Millisecond, func() { heard <- struct{}{} })
	})
	await.Receive(t, heard, "word of a change") // it listens
	require.NoError(t, d.Cut(ctx))
	await.Receive(t, heard, "word of a change") // it listens again: something may have been missed
	await.Until(t, "the pool recovers too", func() bool { return cli.PutSetting(ctx, "a", "b") == nil })
	await.Receive(t, heard, "word of a change")
	require.ErrorIs(t, openHosted(t, d).Serve(ctx), store.ErrServed)

	require.NoError(t, serve.PutSetting(ctx, "a", "c"))
}

// TestPostgres_RereadsPassword changes the password and cuts all connections.
func TestPostgres_RereadsPassword(t *testing.T) {
	t.Parallel()
	d, ctx := hosted(t), t.Context()
	var now atomic.Pointer[store.Postgres]
	now.Store(&store.Postgres{URL: d.URL()})
	at := *now.Load()
	at.Reread = func() (store.Postgres, error) { return *now.Load(), nil }
	opened, err := store.OpenPostgres(ctx, at)
	s := closing(t, opened, err)
	require.NoError(t, s.PutSetting(ctx, "a", "a"))
	u, err := url.Parse(d.URL())
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), "another")
	require.NoError(t, d.SetPassword(ctx, "another"))
	now.Store(&store.Postgres{URL: u.String()})
	require.NoError(t, d.Cut(ctx))
	await.Until(t, "the pool has the new password", func() bool { return s.PutSetting(ctx, "a", "b") == nil })
}

// TestPostgres_DropsReadOnlyConnections: those that the pool opened while the server took no
// writes.
func TestPostgres_DropsReadOnlyConnections(t *testing.T) {
	t.Parallel()
	d, ctx := hosted(t), t.Context()
	s := openHosted(t, d)
	require.NoError(t, d.SetReadOnly(ctx, true))
	require.NoError(t, d.Cut(ctx))
	await.Until(t, "the database takes no writes", func() bool {
		var refused *pgconn.PgError
		return errors.As(s.PutSetting(ctx, "a", "b"), &refused) && refused.Code == "25006" // read_only_sql_transaction
	})
	require.NoError(t, d.SetReadOnly(ctx, false))
	require.NoError(t, s.PutSetting(ctx, "a", "c"))
}

// TestServe_LostClaim has a second control plane claim the database while the first has no
// connection.
func TestServe_LostClaim(t *testing.T) {
	t.Parallel()
	d, ctx := hosted(t), t.Context()
	first, second := openHosted(t, d), openHosted(t, d)
	require.NoError(t, first.Serve(ctx))
	require.NoError(t, d.Cut(ctx))
	require.NoError(t, second.Serve(ctx))
	require.ErrorIs(t, first.Watch(ctx, time.Second, func() {}), store.ErrServed)
}

func TestPostgres_StatementTimeout(t *testing.T) {
	t.Parallel()
	d, ctx := hosted(t), t.Context()
	s, other := openHosted(t, d), openHosted(t, d)
	require.NoError(t, other.Update(ctx, func(tx *store.Tx) error {
		given := make(chan error, 1)
		go func() { given <- s.PutSetting(ctx, "a", "b") }()
		require.Error(t, await.Receive(t, given, "the end of the statement"))
		return tx.PutSetting(ctx, "a", "c")
	}))
	require.NoError(t, s.PutSetting(ctx, "a", "d"))
}

// TestPostgres_ConnectTimeout connects to a server that never responds.
func TestPostgres_ConnectTimeout(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	given := make(chan error, 1)
	go func() {
		_, err := store.OpenPostgres(t.Context(), store.Postgres{URL: "postgres://u:hunter2@" + l.Addr().String() + "/d"})
		given <- err
	}()
	err = await.Receive(t, given, "the end of the try")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
}

func TestPostgres_RefusesURL(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                                   "is not a URL",
		"host=db user=me":                    "is not a URL",
		"postgres://u:hunter2@db:port/d":     "is not a URL",
		"mysql://u:hunter2@db/d":             "is not a URL",
		"postgres:///d":                      "names no host",
		"postgres://db/d":                    "names no user",
		"postgres://u@db":                    "names no database",
		"postgres://u@db/d?password=hunter2": "among its parameters",
		"postgres://u@db/d?sslmode=allow":    "sslmode=allow",
		"postgres://u:hunter2@db/d?sslmode=sometimes":                                          "sslmode",
		"postgres://u:hunter2@db/d?sslrootcert=" + filepath.Join(os.TempDir(), "no-such-file"): "no-such-file",
	} {
		err := store.Postgres{URL: text}.Validate()
		require.ErrorContains(t, err, says, text)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	require.ErrorContains(t, store.Postgres{URL: "postgres://u@db/d?sslrootcert=a", CAFile: "b"}.Validate(), "give one of them")
	require.NoError(t, store.Postgres{URL: "postgres://u@/d?host=/run/postgresql&sslmode=disable"}.Validate())
}

// FuzzPostgresURL: whatever is given as a URL, a password in it is in no message.
func FuzzPostgresURL(f *testing.F) {
	f.Add("postgres://user:s3cr3t-s3cr3t@db:5432/pipeops?sslmode=verify-full")
	f.Add("postgres://user@db/pipeops?password=s3cr3t-s3cr3t")
	f.Add("postgres://user:s3cr3t-s3cr3t@db:x/pipeops")
	f.Fuzz(func(t *testing.T, text string) {
		p := store.Postgres{URL: text}
		u, parsed := url.Parse(text)
		if parsed != nil || u.User == nil {
			_ = p.Validate()
			return
		}
		password, _ := u.User.Password()
		if err := p.Validate(); err != nil && len(password) > 8 {
			u.User = url.User(u.User.Username())
			if rest := u.String(); !strings.Contains(rest, password) {
				assert.NotContains(t, err.Error(), password)
			}
		}
	})
}

func TestAway(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"refused":       &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"cut":           io.ErrUnexpectedEOF,
		"silent":        context.DeadlineExceeded,
		"starting":      &pgconn.PgError{Code: "57P03"},
		"crashed":       &pgconn.PgError{Code: "57P02"},
		"disk full":     &pgconn.PgError{Code: "53100"},
		"not connected": &pgconn.ConnectError{},
	} {
		assert.True(t, store.Away(fmt.Errorf("database: %w", err)), name)
	}
	for name, err := range map[string]error{
		"nothing": nil, "told to stop": context.Canceled, "another's": errors.New("no such agent"),
		"a file of another user":    &fs.PathError{Op: "open", Path: "serve.lock", Err: syscall.EACCES},
		"a value that does not fit": &pgconn.PgError{Code: "22001"}, "a duplicate": &pgconn.PgError{Code: "23505"}, "not found": store.ErrNotFound,
	} {
		assert.False(t, store.Away(err), name)
	}
}
