package postgres

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// Shared is a server for all tests of a package, started for the first that wants
// it. The package's TestMain calls Stop.
type Shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Server is the server. Under -short the test is skipped.
func (s *Shared) Server(t testing.TB) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL")
	}
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 12*time.Minute)
		defer cancel()
		s.server, s.err = Start(ctx, Options{})
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

// Database is a new database for a test, which is dropped when the test ends.
func (s *Shared) Database(t testing.TB) *Database {
	t.Helper()
	d, err := s.Server(t).NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.Drop(ctx); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return d
}

// Twice is a TestMain of tests that hold for SQLite and for PostgreSQL: it runs all
// of them, and then, unless -short or -fuzz is given, all of them again with
// onPostgres set.
func (s *Shared) Twice(m *testing.M, onPostgres *bool) int {
	flag.Parse()
	code := m.Run()
	if code != 0 || testing.Short() || flag.Lookup("test.fuzz").Value.String() != "" {
		return code
	}
	fmt.Println("once more, on PostgreSQL:")
	*onPostgres = true
	code = m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Stop stops the server if there is one.
func (s *Shared) Stop() error {
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}
