package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Database is one of a server's databases, initially empty, with an owner that has no other rights.
type Database struct {
	server         *Server
	Name, Password string // Name is also the owner's
}

// NewDatabase creates a database and its owner.
func (s *Server) NewDatabase(ctx context.Context) (*Database, error) {
	d := &Database{server: s, Name: "db_" + strings.ToLower(rand.Text()[:12]), Password: rand.Text()}
	err := s.Run(ctx,
		// The password cannot be a parameter. It consists of letters and digits.
		fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s'`, d.Name, d.Password),
		fmt.Sprintf(`CREATE DATABASE %s OWNER %s`, d.Name, d.Name))
	return d, err
}

// AdminEnviron returns the environment with which libpq's programs are the server's superuser.
func (s *Server) AdminEnviron() []string {
	return []string{
		"PGHOST=127.0.0.1", "PGPORT=" + strconv.Itoa(s.port), "PGUSER=" + superuser, "PGPASSWORD=" + s.password,
		"PGDATABASE=postgres", "PGSSLMODE=verify-full", "PGSSLROOTCERT=" + s.CAFile(),
	}
}

// Run runs statements as the superuser.
func (s *Server) Run(ctx context.Context, statements ...string) error {
	conn, err := s.superuser(ctx)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		_, failed := conn.Exec(ctx, statement)
		err = errors.Join(err, failed)
	}
	return errors.Join(err, conn.Close(ctx))
}

// URL returns the database's URL with its password, verified by the server's CA. A busy machine
// takes time to connect.
func (d *Database) URL() string {
	return d.server.url(d.Name, d.Password, d.Name) + "&connect_timeout=60"
}

// URLWithoutPassword returns the URL for a command line.
func (d *Database) URLWithoutPassword() string { return d.server.url(d.Name, "", d.Name) }

// URLAt returns the URL, with the password, for another machine, which must receive the CA
// separately.
func (d *Database) URLAt(host string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(d.Name, d.Password),
		Host: net.JoinHostPort(host, strconv.Itoa(d.server.port)), Path: "/" + d.Name,
	}
	return u.String()
}

// URLOver returns the URL with another port of 127.0.0.1, which belongs to a forwarder to the
// server.
func (d *Database) URLOver(port int) string {
	over := *d.server
	over.port = port
	return over.url(d.Name, d.Password, d.Name)
}

// Drop cuts the database's connections and removes it with its owner.
func (d *Database) Drop(ctx context.Context) error {
	return d.server.Run(ctx, `DROP DATABASE IF EXISTS `+d.Name+` WITH (FORCE)`, `DROP ROLE IF EXISTS `+d.Name)
}

// Cut ends the database's connections, as a restart of the server or a network fault does.
func (d *Database) Cut(ctx context.Context) error {
	return d.server.Run(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '`+d.Name+`'`)
}

// SetPassword changes the password of the database's owner, which logs in with it from now on.
func (d *Database) SetPassword(ctx context.Context, password string) error {
	return d.server.Run(ctx, fmt.Sprintf(`ALTER ROLE %s PASSWORD '%s'`, d.Name, password))
}

// SetReadOnly has sessions that begin from now on take no writes, or take them again.
func (d *Database) SetReadOnly(ctx context.Context, on bool) error {
	return d.server.Run(ctx, fmt.Sprintf(`ALTER DATABASE %s SET default_transaction_read_only = %t`, d.Name, on))
}

func (s *Server) url(user, password, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(user), Host: "127.0.0.1:" + strconv.Itoa(s.port), Path: "/" + database,
		RawQuery: url.Values{"sslmode": {"verify-full"}, "sslrootcert": {s.CAFile()}}.Encode(),
	}
	if password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}
