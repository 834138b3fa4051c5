package administration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

func TestOperator_CreateRefuses(t *testing.T) {
	p := admintest.Open(t)
	p.Operator(t, "ada", administration.RoleAdmin)
	for name, c := range map[string]struct {
		opts administration.OperatorOptions
		code problem.Code
		word string
	}{
		"no DNS label": {administration.OperatorOptions{Name: "Ada", Role: "viewer", TTL: time.Hour}, problem.Invalid, "not a valid operator name"},
		"openid":       {administration.OperatorOptions{Name: "openid/ada", Role: "viewer", TTL: time.Hour}, problem.Invalid, "not a valid operator name"},
		"role":         {administration.OperatorOptions{Name: "bob", Role: "root", TTL: time.Hour}, problem.Invalid, "viewer, operator, admin"},
		"short":        {administration.OperatorOptions{Name: "bob", Role: "viewer", TTL: time.Second}, problem.Invalid, "--ttl"},
		"long":         {administration.OperatorOptions{Name: "bob", Role: "viewer", TTL: administration.MaxOperatorTTL + 1}, problem.Invalid, "--ttl"},
		"name in use":  {administration.OperatorOptions{Name: "ada", Role: "admin", TTL: time.Hour}, problem.Conflict, "--force"},
		"last admin":   {administration.OperatorOptions{Name: "ada", Role: "viewer", TTL: time.Hour, Replace: true}, problem.Conflict, "only admin"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Operators.Create(t.Context(), c.opts)
			admintest.Refused(t, err, c.code, c.word)
		})
	}
	list, err := p.Operators.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

func TestOperator_RevokeKeepsAnAdmin(t *testing.T) {
	p := admintest.Open(t)
	p.Operator(t, "ada", administration.RoleAdmin)
	p.Operator(t, "vic", administration.RoleViewer)
	p.Operator(t, "bob", administration.RoleAdmin, func(o *administration.OperatorOptions) { o.TTL = time.Minute })
	p.Advance(2 * time.Minute) // bob's certificate has expired, so bob is no longer an admin
	admintest.Refused(t, p.Operators.Revoke(t.Context(), "ada"), problem.Conflict, "only admin")
	admintest.Refused(t, p.Operators.Revoke(t.Context(), "eve"), problem.NotFound, "operator list")
	require.NoError(t, p.Operators.Revoke(t.Context(), "vic"))
	require.NoError(t, p.Operators.Revoke(t.Context(), "vic"), "again")
	p.Operator(t, "bob", administration.RoleAdmin, func(o *administration.OperatorOptions) { o.Replace = true })
	require.NoError(t, p.Operators.Revoke(t.Context(), "ada"))
	p.Operator(t, "ada", administration.RoleViewer) // a revoked name may be used again without --force
}

func TestOperator_Renew(t *testing.T) {
	p := admintest.Open(t)
	cert := admintest.Certificate(t, p.Operator(t, "ada", administration.RoleAdmin).Certificate)
	early, err := p.Operators.Renew(t.Context(), "ada", cert)
	require.NoError(t, err)
	assert.Equal(t, cert.NotAfter, early.ExpiresAt, "more than half of its life is left")
	p.Advance(40 * time.Minute)
	dry, err := p.DryRun().Operators.Renew(t.Context(), "ada", cert)
	require.NoError(t, err)
	assert.Equal(t, cert.NotAfter, dry.ExpiresAt)
	renewed, err := p.Operators.Renew(t.Context(), "ada", cert)
	require.NoError(t, err)
	next := admintest.Certificate(t, renewed.Certificate)
	assert.Equal(t, cert.SerialNumber, next.SerialNumber)
	assert.Equal(t, cert.PublicKey, next.PublicKey)
	assert.True(t, renewed.ExpiresAt.After(cert.NotAfter))
	known, err := p.Database().Operator(t.Context(), "ada")
	require.NoError(t, err)
	assert.Equal(t, renewed.ExpiresAt, known.ExpiresAt.UTC())

	p.Operator(t, "ada", administration.RoleAdmin, func(o *administration.OperatorOptions) { o.Replace = true })
	_, err = p.Operators.Renew(t.Context(), "ada", cert)
	admintest.Refused(t, err, problem.Conflict, "newest credentials")
}

func TestOperatorRunner_Set(t *testing.T) {
	p := admintest.Open(t)
	p.Operator(t, "ada", administration.RoleAdmin)
	p.Operator(t, "vic", administration.RoleViewer)
	require.NoError(t, p.Operators.Revoke(t.Context(), "vic"))
	for _, name := range []string{"ci", "old"} {
		_, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: name, TTL: time.Hour})
		require.NoError(t, err)
	}
	require.NoError(t, p.Runners.Revoke(t.Context(), "old"))
	admintest.Refused(t, p.Operators.ActAs(t.Context(), "eve", "ci"), problem.NotFound, "no operator")
	admintest.Refused(t, p.Operators.ActAs(t.Context(), "vic", "ci"), problem.NotFound, "no operator")
	admintest.Refused(t, p.Operators.ActAs(t.Context(), "ada", "cd"), problem.NotFound, "no Runner")
	admintest.Refused(t, p.Operators.ActAs(t.Context(), "ada", "old"), problem.Conflict, "revoked")
	admintest.Refused(t, p.Operators.ActNoMore(t.Context(), "ada"), problem.NotFound, "no Runner")
	require.NoError(t, p.Operators.ActAs(t.Context(), "ada", "ci"))
	require.NoError(t, p.Operators.ActAs(t.Context(), authn.OpenIDPrefix+"eve", "ci"), "who exists in a session alone")
	require.NoError(t, p.Operators.ActNoMore(t.Context(), "ada"))
	acting, err := p.Operators.Acting(t.Context())
	require.NoError(t, err)
	require.Len(t, acting, 1)
	assert.Equal(t, "openid/eve", acting[0].Operator)
}

func TestConsoleSession_EndedByOperator(t *testing.T) {
	p := admintest.Open(t)
	p.Operator(t, "ada", administration.RoleAdmin)
	open := func(digests ...string) {
		t.Helper()
		for _, d := range digests {
			session := store.ConsoleSession{Digest: d, Kind: store.ConsoleOpen, Operator: "ada", ExpiresAt: p.Clock().Add(time.Hour)}
			require.NoError(t, p.Database().Update(t.Context(), func(tx *store.Tx) error { return tx.InsertConsoleSession(t.Context(), session) }))
		}
	}
	sessions := func() []store.ConsoleSession {
		t.Helper()
		list, err := p.Operators.Sessions(t.Context())
		require.NoError(t, err)
		return list
	}
	open("one", "two")
	require.Len(t, sessions(), 2)
	ended, err := p.Operators.EndSessions(t.Context(), "ada")
	require.NoError(t, err)
	assert.Equal(t, 2, ended)
	_, err = p.Operators.EndSessions(t.Context(), "ada")
	admintest.Refused(t, err, problem.NotFound, "no session")
	open("three")
	p.Operator(t, "ada", administration.RoleAdmin, func(o *administration.OperatorOptions) { o.Replace = true })
	assert.Empty(t, sessions(), "those of earlier credentials have ended")
}
