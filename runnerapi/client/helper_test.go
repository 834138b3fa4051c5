package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var web = runnerapi.Key{Namespace: "production", Name: "web"}

func ctxFor(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func codeOf(t *testing.T, err error) runnerapi.Code {
	t.Helper()
	e := &runnerapi.Error{}
	require.ErrorAs(t, err, &e)
	assert.NotEmpty(t, e.Fix, "every error says what to do")
	return e.Code
}
