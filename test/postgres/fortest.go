package postgres

import (
	"context"
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

// Server returns the server. Under -short the test is skipped.
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

// Database returns a new database for a test, which is dropped when the test ends.
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

// Stop stops the server if there is one.
func (s *Shared) Stop() error {
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}
