package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

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
		"a value that does not fit": &pgconn.PgError{Code: "22001"}, "a duplicate": &pgconn.PgError{Code: "23505"}, "not found": store.ErrNotFound,
	} {
		assert.False(t, store.Away(err), name)
	}
}
