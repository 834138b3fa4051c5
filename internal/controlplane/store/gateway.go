package store

import (
	"context"
	"time"
)

// GatewayFile is something that the gateways keep together, encrypted.
type GatewayFile struct {
	Name       string
	Sealed     string
	Size       int64 // of the plain text
	ModifiedAt time.Time
}

const gatewayFileColumns = `name, sealed, size, modified_at`

func scanGatewayFile(row scanner, f *GatewayFile) error {
	return row.Scan(&f.Name, &f.Sealed, &f.Size, moment{&f.ModifiedAt})
}

// gatewayTable has the statements about what the gateway stores.
type gatewayTable struct{ table }

// GatewayFile returns a file, or ErrNotFound.
func (q gatewayTable) GatewayFile(ctx context.Context, name string) (GatewayFile, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+gatewayFileColumns+` FROM gateway_files WHERE name = $1`, name), scanGatewayFile)
}

// GatewayFiles lists the names of the files that begin with prefix.
func (q gatewayTable) GatewayFiles(ctx context.Context, prefix string) ([]string, error) {
	return all(ctx, q.q, func(row scanner, name *string) error { return row.Scan(name) },
		`SELECT name FROM gateway_files WHERE substr(name, 1, length($1)) = $1 ORDER BY name`, prefix)
}

// PutGatewayFile writes a file.
func (s *Store) PutGatewayFile(ctx context.Context, f GatewayFile) error {
	return s.UpdateQuietly(ctx, func(tx *Tx) error {
		_, err := tx.exec(ctx, `INSERT INTO gateway_files (`+gatewayFileColumns+`) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, size = excluded.size, modified_at = excluded.modified_at`,
			f.Name, f.Sealed, f.Size, micros(f.ModifiedAt))
		return err
	})
}

// DeleteGatewayFiles deletes a file, and those in the folder of that name.
func (s *Store) DeleteGatewayFiles(ctx context.Context, name string) error {
	return s.UpdateQuietly(ctx, func(tx *Tx) error {
		_, err := tx.exec(ctx, `DELETE FROM gateway_files WHERE name = $1 OR substr(name, 1, length($2)) = $2`, name, name+"/")
		return err
	})
}

// LockGateway takes or renews a lock for a while. It reports whether the holder has it now.
func (s *Store) LockGateway(ctx context.Context, name, holder string, lease time.Duration) (has bool, err error) {
	now := s.engine.clock()
	err = s.UpdateQuietly(ctx, func(tx *Tx) error {
		n, err := tx.exec(ctx, `INSERT INTO gateway_locks (name, holder, until) VALUES ($1, $2, `+now+` + $3)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
				WHERE gateway_locks.holder = excluded.holder OR gateway_locks.until <= `+now,
			name, holder, lease.Microseconds())
		has = n > 0
		return err
	})
	return has, err
}

// UnlockGateway gives a lock back, if the holder has it.
func (s *Store) UnlockGateway(ctx context.Context, name, holder string) error {
	return s.UpdateQuietly(ctx, func(tx *Tx) error {
		_, err := tx.exec(ctx, `DELETE FROM gateway_locks WHERE name = $1 AND holder = $2`, name, holder)
		return err
	})
}
