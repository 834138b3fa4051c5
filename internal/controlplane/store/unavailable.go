package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Away reports whether the database could not be reached, or aborted a query because it stops,
// starts or is full: a retry will succeed later. Other errors would occur again.
func Away(err error) bool {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, class := range []string{"08", "53", "57"} { // connection, resources, operator intervention
			if strings.HasPrefix(answer.Code, class) {
				return true
			}
		}
		return false
	}
	if _, ofFile := errors.AsType[*fs.PathError](err); ofFile { // its number would pass for a network's
		return false
	}
	var connecting *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connecting) || errors.As(err, &network) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF)
}
