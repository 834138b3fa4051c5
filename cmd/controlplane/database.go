package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// databaseFlags select the database, for all subcommands. A password comes from a file or the
// environment: every user of the machine can read a command line.
type databaseFlags struct {
	url, urlFile, passwordFile, caFile string
	caKeyFile                          string
}

var databaseURL = secretURL{
	flag: "database", env: envPrefix + "DATABASE", like: "postgres://USER@HOST:5432/DATABASE",
	fix: "name a file with it by --database-password-file, or put the URL into a file (--database-file) or into " + envPrefix + "DATABASE",
}

func (d *databaseFlags) add(f *pflag.FlagSet) {
	f.StringVar(&d.url, "database", "", "PostgreSQL URL without a password, postgres://USER@HOST:5432/DATABASE (default: SQLite in the data directory)")
	f.StringVar(&d.urlFile, "database-file", "", "file with the PostgreSQL URL, including the password")
	f.StringVar(&d.passwordFile, "database-password-file", "", "file with the password for --database")
	f.StringVar(&d.caFile, "database-ca", "", "file with the CA of PostgreSQL's certificate (default: the machine's CAs)")
	f.StringVar(&d.caKeyFile, "ca-key-file", "", "file with the key of the CA in PostgreSQL, the same on all control planes that share it; see pipeops-controlplane ca key")
	// The environment may hold a password, the flag may not: read distinguishes them.
	_ = f.SetAnnotation("database", notFromEnvironment, []string{})
}

// read returns the zero value if the database is SQLite.
func (d *databaseFlags) read() (store.Postgres, error) {
	p := store.Postgres{CAFile: d.caFile}
	var err error
	if p.URL, err = databaseURL.read(d.url, d.urlFile); err != nil {
		return p, err
	}
	if !p.Given() {
		if d.passwordFile != "" || d.caFile != "" {
			err = errors.New("--database-password-file and --database-ca are for PostgreSQL; give --database as well")
		}
		return p, err
	}
	if d.passwordFile != "" {
		if p.Password, err = readSecret("--database-password-file", d.passwordFile); err != nil {
			return p, err
		}
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("--database: %w", err)
	}
	return p, nil
}

// readCAKey returns the zero value if the CA is in the data directory.
func (d *databaseFlags) readCAKey() (ca.Key, error) {
	if d.caKeyFile == "" {
		return ca.Key{}, nil
	}
	return controlplane.ReadCAKey(d.caKeyFile)
}
