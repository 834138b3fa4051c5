package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// startPatience is how long a control plane that starts waits for a database that
	// is away. Who supervises it starts it again after that.
	startPatience   = 2 * time.Minute
	withoutDatabase = "cannot start without the database; retrying"
)

// awaitDatabase opens until the database is there: after a power cut, or when both are
// moved, a control plane may well start before its database does.
func awaitDatabase(ctx context.Context, log zerolog.Logger, open func() (*ControlPlane, error)) (*ControlPlane, error) {
	started := time.Now()
	for failures := 1; ; failures++ {
		c, err := open()
		if err == nil || !worthWaitingFor(err) || ctx.Err() != nil {
			return c, err
		}
		pause := retry.After(time.Second, 5*time.Second, failures)
		if waited := time.Since(started); waited+pause > startPatience {
			return nil, fmt.Errorf("waited %s for the database: %w", waited.Round(time.Second), err)
		}
		log.Warn().Err(err).Msg(withoutDatabase)
		retry.Wait(ctx, pause)
	}
}

// worthWaitingFor reports whether the database is away. A database that presents another
// certificate is there, and will present the same again. An own port that is taken does not concern
// the database, although the network reports both alike.
func worthWaitingFor(err error) bool {
	var stranger *tls.CertificateVerificationError
	var network *net.OpError
	ours := errors.As(err, &network) && network.Op == "listen"
	return store.Away(err) && !ours && !errors.As(err, &stranger)
}
