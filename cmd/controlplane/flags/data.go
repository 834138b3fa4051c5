package flags

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// DefaultDataDir is the data directory of an installed control plane.
const DefaultDataDir = "/var/lib/pipeops-controlplane"

// Data selects the data directory and the database, for all subcommands. A password comes from a
// file or the environment: every user of the machine can read a command line.
type Data struct {
	Dir       string
	CAKeyFile string // empty if the CA is in the data directory

	url, urlFile, passwordFile, caFile string
}

var databaseURL = secretURL{
	flag: "database", env: EnvDatabase, like: "postgres://USER@HOST:5432/DATABASE",
	fix: "name a file with it by --database-password-file, or put the URL into a file (--database-file) or into " + EnvDatabase,
}

// Add adds the flags.
func (d *Data) Add(f *pflag.FlagSet) {
	f.StringVar(&d.Dir, "data-dir", DefaultDataDir, "directory of the CA and the database, unless they are in PostgreSQL")
	f.StringVar(&d.url, "database", "", "PostgreSQL URL without a password, postgres://USER@HOST:5432/DATABASE (default: SQLite in the data directory)")
	f.StringVar(&d.urlFile, "database-file", "", "file with the PostgreSQL URL, including the password")
	f.StringVar(&d.passwordFile, "database-password-file", "", "file with the password for --database")
	f.StringVar(&d.caFile, "database-ca", "", "file with the CA of PostgreSQL's certificate (default: the machine's CAs)")
	f.StringVar(&d.CAKeyFile, "ca-key-file", "", "file with the key of the CA in PostgreSQL, the same on all control planes that share it; see pipeops-controlplane ca key create")
	// The environment may hold a password, the flag may not: Database distinguishes them.
	_ = f.SetAnnotation("database", notFromEnvironment, []string{})
	MarkOfflineOnly(f, "database", "database-file", "database-password-file", "database-ca", "ca-key-file")
}

// Read returns what the flags name.
func (d *Data) Read() (datadir.Data, error) {
	database, err := d.Database()
	if err != nil {
		return datadir.Data{}, cli.Usage(err)
	}
	key, err := d.CAKey()
	if err != nil {
		return datadir.Data{}, cli.Usage(err)
	}
	if key.Given() && !database.Given() {
		return datadir.Data{}, cli.Usage(errors.New("--ca-key-file: is for control planes that share a database; give --database as well, or leave it out"))
	}
	return datadir.Data{Dir: d.Dir, Database: database, CAKey: key}, nil
}

// Database returns the zero value if the database is SQLite. Its files are read again for each new
// connection.
func (d *Data) Database() (store.Postgres, error) {
	p, err := d.database()
	if p.Given() {
		p.Reread = d.database
	}
	return p, err
}

func (d *Data) database() (store.Postgres, error) {
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
		if p.Password, err = ReadSecret("--database-password-file", d.passwordFile); err != nil {
			return p, err
		}
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("--database: %w", err)
	}
	return p, nil
}

// CAKey returns the zero value if the CA is in the data directory.
func (d *Data) CAKey() (ca.Key, error) {
	if d.CAKeyFile == "" {
		return ca.Key{}, nil
	}
	return castore.ReadKey(d.CAKeyFile)
}
