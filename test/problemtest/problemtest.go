// Package problemtest reads the problems that calls return as errors.
package problemtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Of returns the problem that an error has. It fails the test if there is none; about says of what.
func Of(t testing.TB, err error, about ...any) *problem.Error {
	t.Helper()
	p := &problem.Error{}
	require.ErrorAs(t, err, &p, about...)
	return p
}
