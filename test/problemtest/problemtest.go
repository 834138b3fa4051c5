// Package problemtest reads the problems that calls return as errors.
package problemtest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
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

// Code returns the code of the problem that an error has, if it has one.
func Code(err error) problem.Code {
	if p, found := errors.AsType[*problem.Error](err); found {
		return p.Code
	}
	return ""
}

// CodeOf returns the code of the problem that an error has, which says what to do.
func CodeOf(t testing.TB, err error) problem.Code {
	t.Helper()
	p := Of(t, err)
	assert.NotEmpty(t, p.Fix, "every error says what to do")
	return p.Code
}

// Refused returns the problem that an error has, with this code, these words and a fix.
func Refused(t testing.TB, err error, code problem.Code, words ...string) *problem.Error {
	t.Helper()
	p := Of(t, err)
	assert.Equal(t, code, p.Code, err)
	assert.NotEmpty(t, p.Fix, err)
	for _, word := range words {
		require.ErrorContains(t, err, word)
	}
	return p
}
