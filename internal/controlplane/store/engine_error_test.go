package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func TestEngineError_NamesCause(t *testing.T) {
	for want, err := range map[string]error{
		"its disk is full":                 &pgconn.PgError{Code: "53100"},
		"it accepts no more connections":   &pgconn.PgError{Code: "53300"},
		"it stops, starts or canceled the": &pgconn.PgError{Code: "57P01"},
		"does not answer in time":          fmt.Errorf("begin: %w", context.DeadlineExceeded),
		"or does not answer":               sql.ErrTxDone,
	} {
		f, ok := errors.AsType[*store.EngineError](store.FailureOf(err))
		require.True(t, ok, want)
		assert.Contains(t, f.Explained().Detail, want)
		assert.NotEmpty(t, f.Fix)
		seen, ok := problem.Of(fmt.Errorf("register: %w", f))
		require.True(t, ok)
		assert.Equal(t, 503, seen.Status)
		assert.NotContains(t, seen.Detail, f.Detail, "an agent has no use for the cause")
	}
	for _, err := range []error{&pgconn.PgError{Code: "23505"}, context.Canceled, errors.New("a bug")} {
		_, ok := problem.Of(store.FailureOf(err))
		assert.False(t, ok, "%v", err)
	}
}

func TestOpen_DamagedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controlplane.db")
	s, err := store.Open(t.Context(), file)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	for name, text := range map[string][]byte{"no database": []byte("this is a text, and no database at all"), "truncated": whole[:len(whole)/2]} {
		require.NoError(t, os.WriteFile(file, text, 0o600))
		_, err = store.Open(t.Context(), file)
		require.ErrorContains(t, err, "its file is damaged", name)
		require.ErrorContains(t, err, "(fix: restore a backup", name)
	}
}
