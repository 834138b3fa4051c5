package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// databaseFlags say which database, for all subcommands. A password comes from a
// file or the environment: what is on a command line is everybody's to read.
type databaseFlags struct {
	url, urlFile, passwordFile, caFile string
}

const (
	envDatabase     = envPrefix + "DATABASE"
	maxDatabaseFile = 16 << 10
)

func (d *databaseFlags) add(f *pflag.FlagSet) {
	f.StringVar(&d.url, "database", "", "URL of PostgreSQL without a password, postgres://USER@HOST:5432/DATABASE (default: SQLite in the data directory)")
	f.StringVar(&d.urlFile, "database-file", "", "file with the URL of PostgreSQL, password included")
	f.StringVar(&d.passwordFile, "database-password-file", "", "file with the password for --database")
	f.StringVar(&d.caFile, "database-ca", "", "file with the CA of PostgreSQL's certificate (default: the machine's CAs)")
	// The environment may hold a password, the flag may not: read tells them apart.
	_ = f.SetAnnotation("database", notFromEnvironment, []string{})
}

// read is the zero value without a database other than SQLite.
func (d *databaseFlags) read() (store.Postgres, error) {
	p := store.Postgres{URL: d.url, CAFile: d.caFile}
	var err error
	switch env := os.Getenv(envDatabase); {
	case d.url != "" && d.urlFile != "":
		return p, errors.New("--database and --database-file: give one of them")
	case d.urlFile != "":
		p.URL, err = readSecret("--database-file", d.urlFile)
	case d.url == "":
		p.URL = env
	default:
		err = withoutPassword(d.url)
	}
	if err != nil {
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

func withoutPassword(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("--database: is not a URL; it looks like postgres://USER@HOST:5432/DATABASE")
	}
	if _, secret := u.User.Password(); secret || u.Query().Has("password") {
		return fmt.Errorf("--database: holds a password, which everybody on this machine can read on the command line; "+
			"name a file with it by --database-password-file, or put the URL into a file (--database-file) or into %s", envDatabase)
	}
	return nil
}

func readSecret(flag, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxDatabaseFile))
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s: %s is empty", flag, file)
	}
	return secret, nil
}
