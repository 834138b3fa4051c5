package store

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5" // the driver; it supports LISTEN, which database/sql does not
	"github.com/rs/zerolog"
)

// Postgres is the address of a PostgreSQL database and its credentials. The zero value means none.
type Postgres struct {
	// URL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS, with libpq's parameters.
	// Without sslmode, the server's certificate and name are verified.
	URL string
	// Password is for a URL without one.
	Password string
	// CAFile is the CA of the server's certificate, in PEM; empty means the machine's trusted CAs.
	CAFile string
	// Reread returns the configuration as it is now, for each new connection; nil if it does not
	// change.
	Reread func() (Postgres, error)
	// Log receives a line when the connection for notifications was lost.
	Log zerolog.Logger
}

const (
	// queryTimeout bounds each statement, at both ends: the server's limit holds when the network
	// is gone, ours when the server is.
	queryTimeout = 10 * time.Second
	// updateTimeout bounds a transaction, which blocks all other writers.
	updateTimeout  = 30 * time.Second
	connectTimeout = 5 * time.Second
	// A peer that has disappeared silently is detected after some 25 s.
	keepAliveIdle, keepAliveEvery, keepAliveCount = 10 * time.Second, 5 * time.Second, 3
)

// Given reports whether a database is configured.
func (p Postgres) Given() bool { return p.URL != "" }

// String returns the URL without password and parameters.
func (p Postgres) String() string {
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" {
		return "postgres:"
	}
	clean := url.URL{Scheme: "postgres", Host: u.Host, Path: u.Path}
	if u.User != nil {
		clean.User = url.User(u.User.Username())
	}
	return clean.String()
}

// GoString keeps the password out of %#v.
func (p Postgres) GoString() string { return p.String() }

// Validate returns what is wrong. It never quotes the URL, which may hold a password in an
// unexpected place.
func (p Postgres) Validate() error {
	_, err := p.connConfig()
	return err
}

var errURL = errors.New("is not a URL of PostgreSQL; it looks like postgres://USER@HOST:5432/DATABASE")

// connConfig returns the driver's configuration. The password bypasses the driver's parser, so its
// errors cannot contain it.
func (p Postgres) connConfig() (*pgx.ConnConfig, error) {
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errURL
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	switch {
	case err != nil:
		return nil, errURL
	case parameters.Has("password"):
		return nil, errors.New("has the password among its parameters; write postgres://USER:PASSWORD@HOST/DATABASE")
	case u.Host == "" && !parameters.Has("host"):
		return nil, errors.New("names no host; it looks like postgres://USER@HOST:5432/DATABASE")
	case u.User.Username() == "":
		return nil, errors.New("names no user; it looks like postgres://USER@HOST:5432/DATABASE")
	case strings.Trim(u.Path, "/") == "":
		return nil, errors.New("names no database; it looks like postgres://USER@HOST:5432/DATABASE")
	}
	if err := p.tls(parameters); err != nil {
		return nil, err
	}
	password, inURL := u.User.Password()
	if !inURL {
		password = p.Password
	}
	u.User, u.RawQuery = url.User(u.User.Username()), parameters.Encode()
	cfg, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, fmt.Errorf("is not understood: %w", err)
	}
	if password != "" { // else one from libpq's sources: PGPASSWORD, ~/.pgpass
		cfg.Password = password
	}
	p.bounds(cfg)
	return cfg, nil
}

// tls verifies the server unless the URL explicitly disables that.
func (p Postgres) tls(parameters url.Values) error {
	switch mode := parameters.Get("sslmode"); mode {
	case "":
		parameters.Set("sslmode", "verify-full")
	case "allow", "prefer":
		return fmt.Errorf("asks for sslmode=%s, which an attacker in between can turn into a connection without TLS; leave it out (verify-full), or write disable if the network is your own", mode)
	}
	if p.CAFile == "" {
		return nil
	}
	if parameters.Has("sslrootcert") {
		return errors.New("names a CA (sslrootcert), and so does --database-ca; give one of them")
	}
	parameters.Set("sslrootcert", p.CAFile)
	return nil
}

func (p Postgres) bounds(cfg *pgx.ConnConfig) {
	if cfg.ConnectTimeout == 0 { // otherwise the URL's
		cfg.ConnectTimeout = connectTimeout
	}
	cfg.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: keepAliveIdle, Interval: keepAliveEvery, Count: keepAliveCount,
	}}).DialContext
	for name, value := range map[string]string{
		"application_name": "pipeops-controlplane",
		// A stalled writer must not block the others.
		"idle_in_transaction_session_timeout": milliseconds(updateTimeout),
		"statement_timeout":                   milliseconds(queryTimeout),
		"tcp_keepalives_idle":                 fmt.Sprint(keepAliveIdle.Seconds()),
		"tcp_keepalives_interval":             fmt.Sprint(keepAliveEvery.Seconds()),
		"tcp_keepalives_count":                fmt.Sprint(keepAliveCount),
	} {
		if _, given := cfg.RuntimeParams[name]; !given {
			cfg.RuntimeParams[name] = value
		}
	}
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// current returns the driver's configuration as it is now. If that cannot be read, it is that of
// the start.
func (e *postgres) current() *pgx.ConnConfig {
	if e.reread == nil {
		return e.cfg.Copy()
	}
	p, err := e.reread()
	if err == nil {
		var cfg *pgx.ConnConfig
		if cfg, err = p.connConfig(); err == nil {
			return cfg
		}
	}
	e.log.Warn().Err(err).Msg("failed to reload the database's configuration; using the previous one")
	return e.cfg.Copy()
}
