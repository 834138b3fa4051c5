package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// Bare is a database of which a test decides what tables it has.
type Bare struct {
	*sql.DB
	*goose.Provider
}

// BareFile is SQLite's.
func BareFile(file string) (Bare, error) {
	db, err := openFile(file)
	if err != nil {
		return Bare{}, err
	}
	provider, err := newProvider(sqliteDialect, db)
	return Bare{db, provider}, err
}

// BarePostgres is PostgreSQL's.
func BarePostgres(p Postgres) (Bare, error) {
	cfg, err := p.connConfig()
	if err != nil {
		return Bare{}, err
	}
	db := stdlib.OpenDB(*cfg)
	provider, err := newProvider(postgresDialect, db)
	return Bare{db, provider}, err
}

// Run runs SQL as it stands.
func (b Bare) Run(ctx context.Context, statements string) error {
	_, err := b.ExecContext(ctx, statements)
	return err
}

// Close closes the database.
func (b Bare) Close() error { return errors.Join(b.Provider.Close(), b.DB.Close()) }
