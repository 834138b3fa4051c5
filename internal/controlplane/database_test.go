package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

// What the tests share.
var (
	databases postgres.Shared
	rabbit    broker.Shared
)

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, databases.Stop, rabbit.Stop).Run()) }

// newDatabase makes an empty database on PostgreSQL. SQLite needs none: its file is in the data
// directory.
func newDatabase(t testing.TB, on postgres.Engine) store.Postgres {
	t.Helper()
	if on == postgres.SQLite {
		return store.Postgres{}
	}
	return store.Postgres{URL: databases.Database(t).URL(), Log: zerolog.Nop()}
}

// errAway is what a server that is not there is told by.
var errAway = fmt.Errorf("open the database: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})

// TestNew_WaitsForDatabase: the database is out of reach at the first try, as after a power cut
// that took both.
func TestNew_WaitsForDatabase(t *testing.T) {
	d := databases.Database(t)
	at, err := url.Parse(d.URL())
	require.NoError(t, err)
	between, err := faultproxy.Listen(t.Context(), "to the database", at.Host)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, between.Close()) })
	between.Set(faultproxy.Condition{Cut: true})
	tries := 0
	start(t, func(c *Config) {
		c.Database = store.Postgres{URL: d.URLOver(between.Port()), Log: zerolog.Nop()}
		c.Log = zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, message string) {
			if message == withoutDatabase {
				tries++
				between.Set(faultproxy.Condition{})
			}
		}))
	})
	assert.Equal(t, 1, tries)
}

func TestAwaitDatabase_GivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		_, err := awaitDatabase(t.Context(), zerolog.Nop(), func() (*ControlPlane, error) { return nil, errAway })
		require.ErrorIs(t, err, errAway)
		assert.ErrorContains(t, err, "waited")
		assert.InDelta(t, startPatience, time.Since(started), float64(5*time.Second))
	})
}

func TestAwaitDatabase_OtherErrors(t *testing.T) {
	for name, fault := range map[string]error{
		"another's certificate": fmt.Errorf("open: %w", errors.Join(&pgconn.ConnectError{}, &tls.CertificateVerificationError{Err: errors.New("unknown authority")})),
		"a wrong password":      &pgconn.PgError{Code: "28P01"},
		"a port in use":         fmt.Errorf("--api-listen: %w", &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}),
	} {
		tries := 0
		_, err := awaitDatabase(t.Context(), zerolog.Nop(), func() (*ControlPlane, error) { tries++; return nil, fault })
		require.ErrorIs(t, err, fault, name)
		assert.Equal(t, 1, tries, name)
	}
}

func TestAwaitDatabase_Cancelled(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	_, err := awaitDatabase(ctx, zerolog.Nop(), func() (*ControlPlane, error) { stop(); return nil, errAway })
	require.Error(t, err)
}
