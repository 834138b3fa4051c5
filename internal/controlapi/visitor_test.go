package controlapi_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func TestVisitor_RoundTrip(t *testing.T) {
	ca := newAuthority(t)
	want := controlapi.Visitor{Subject: "1", Email: "a@example.com", EmailVerified: true, Name: "A", Groups: []string{"shop"}}
	asked := controlapi.VisitorRequest{Host: "shop.example.com", Code: "CODE", Verifier: strings.Repeat("v", 43)}
	b := &backend{visitor: func(agentID string, req controlapi.VisitorRequest) (controlapi.Visitor, error) {
		assert.Equal(t, "leaf", agentID)
		assert.Equal(t, asked, req)
		return want, nil
	}}
	c := clientOf(t, ca, handlerOf(b, zerolog.Nop()))
	got, err := c.Visitor(t.Context(), asked)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	for name, change := range map[string]func(*controlapi.VisitorRequest){
		"host":     func(r *controlapi.VisitorRequest) { r.Host = "shop.example.com:443" },
		"code":     func(r *controlapi.VisitorRequest) { r.Code = strings.Repeat("x", 129) },
		"verifier": func(r *controlapi.VisitorRequest) { r.Verifier = "short" },
	} {
		bad := asked
		change(&bad)
		_, err := c.Visitor(t.Context(), bad)
		require.Error(t, err, name)
		refused, ok := problem.Of(err)
		require.True(t, ok, name)
		assert.Equal(t, problem.Invalid, refused.Code, name)
	}
}
