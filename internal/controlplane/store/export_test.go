package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"maps"
	"testing/fstest"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// Bare is a database of which a test decides what tables it has.
type Bare struct {
	*sql.DB
	*goose.Provider
}

// BareFile is SQLite's, with the files of further migrations.
func BareFile(file string, further ...fstest.MapFS) (Bare, error) {
	db, err := openFile(file)
	if err != nil {
		return Bare{}, err
	}
	provider, err := newProvider(sqliteDialect, db, with(further))
	return Bare{db, provider}, err
}

// BarePostgres is PostgreSQL's.
func BarePostgres(p Postgres, further ...fstest.MapFS) (Bare, error) {
	cfg, err := p.connConfig()
	if err != nil {
		return Bare{}, err
	}
	db := stdlib.OpenDB(*cfg)
	provider, err := newProvider(postgresDialect, db, with(further))
	return Bare{db, provider}, err
}

// with are the migrations, and further ones.
func with(further []fstest.MapFS) fs.FS {
	all := fstest.MapFS{}
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		text, err := migrations.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic(err)
		}
		all["migrations/"+e.Name()] = &fstest.MapFile{Data: text}
	}
	for _, files := range further {
		maps.Copy(all, files)
	}
	return all
}

// Run runs SQL as it stands.
func (b Bare) Run(ctx context.Context, statements string) error {
	_, err := b.ExecContext(ctx, statements)
	return err
}

// Close closes the database.
func (b Bare) Close() error { return errors.Join(b.Provider.Close(), b.DB.Close()) }

// FailureOf classifies an error of the database.
func FailureOf(err error) error { return failure(err) }
