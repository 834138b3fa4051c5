package postgres

import (
	"os"
	"testing"
)

// Engine is a database that a control plane runs on.
type Engine string

// The engines.
const (
	SQLite     Engine = "sqlite"
	PostgreSQL Engine = "postgres"
)

// EnvDatabase is the environment variable that selects the Engine of the control plane's tests that
// run on one engine. Empty means SQLite. Tests of behaviour that differs by database always run on
// both.
const EnvDatabase = "PIPEOPS_TEST_DATABASE"

// Chosen returns the engine of tests that run on one.
func Chosen(t testing.TB) Engine {
	t.Helper()
	switch engine := Engine(os.Getenv(EnvDatabase)); engine {
	case "":
		return SQLite
	case SQLite, PostgreSQL:
		return engine
	default:
		t.Fatalf("%s=%s: want %s or %s", EnvDatabase, engine, SQLite, PostgreSQL)
		return ""
	}
}

// OnEach runs a test of behaviour that differs by database as one subtest for each engine.
func OnEach(t *testing.T, test func(t *testing.T, on Engine)) {
	t.Helper()
	for _, engine := range []Engine{SQLite, PostgreSQL} {
		t.Run(string(engine), func(t *testing.T) { test(t, engine) })
	}
}
