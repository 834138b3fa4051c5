package administration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
)

func TestRunner_CreateRefuses(t *testing.T) {
	p := admintest.Open(t)
	_, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ci", TTL: time.Hour})
	require.NoError(t, err)
	for _, c := range []struct {
		opts administration.RunnerOptions
		code problem.Code
		word string
	}{
		{administration.RunnerOptions{Name: "CI", TTL: time.Hour}, problem.Invalid, "not a valid Runner name"},
		{administration.RunnerOptions{Name: "cd", TTL: time.Second}, problem.Invalid, "--ttl"},
		{administration.RunnerOptions{Name: "ci", TTL: time.Hour}, problem.Conflict, "--force"},
	} {
		_, err := p.Runners.Issue(t.Context(), c.opts)
		admintest.Refused(t, err, c.code, c.word)
		_, err = p.DryRun().Runners.Issue(t.Context(), c.opts)
		admintest.Refused(t, err, c.code, c.word)
	}
	_, err = p.DryRun().Runners.Issue(t.Context(), administration.RunnerOptions{Name: "cd", TTL: time.Hour})
	require.NoError(t, err)
	list, err := p.Runners.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list, 1, "a dry run creates none")
}

func TestRunner_GrantReplacesCertificate(t *testing.T) {
	p := admintest.Open(t)
	prod, err := credentials.ParseGrant("env=prod")
	require.NoError(t, err)
	first, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ci", TTL: 90 * time.Minute, BrokerURL: "amqps://ci@broker"})
	require.NoError(t, err)
	assert.Equal(t, "amqps://ci@broker", first.Broker.URL)
	next, err := p.Runners.Grant(t.Context(), "ci", prod, "", nil)
	require.NoError(t, err)
	old, cert := admintest.Certificate(t, first.Certificate), admintest.Certificate(t, next.Certificate)
	assert.Equal(t, p.Clock().Add(90*time.Minute), cert.NotAfter, "it lasts as long as the first was made for")
	granted, err := credentials.GrantOf(cert)
	require.NoError(t, err)
	assert.Equal(t, "env=prod", granted.String())
	revoked, err := p.Database().RevokedSerials(t.Context(), p.Clock())
	require.NoError(t, err)
	assert.Equal(t, []string{old.SerialNumber.Text(16)}, revoked)

	from, now := "", "env=prod"
	_, err = p.Runners.Grant(t.Context(), "ci", credentials.Grant{}, "", &from)
	admintest.Refused(t, err, runnerapi.CodeChanged, `Runner ci has grant "env=prod", and the change was made from grant ""`)
	list, err := p.Runners.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "env=prod", list[0].Agents)
	assert.Equal(t, cert.SerialNumber.Text(16), list[0].Serial, "what is refused revokes nothing")
	_, err = p.Runners.Grant(t.Context(), "ci", prod, "", &now)
	require.NoError(t, err)

	require.NoError(t, p.Runners.Revoke(t.Context(), "ci"))
	_, err = p.Runners.Grant(t.Context(), "ci", prod, "", nil)
	admintest.Refused(t, err, problem.Conflict, "revoked")
	_, err = p.Runners.Grant(t.Context(), "cd", prod, "", nil)
	admintest.Refused(t, err, problem.NotFound, "runner list")
	admintest.Refused(t, p.Runners.Revoke(t.Context(), "cd"), problem.NotFound, "runner list")
}

func TestToken_CreateRefuses(t *testing.T) {
	p := admintest.Open(t)
	account := func(text string) administration.TokenOptions {
		return administration.TokenOptions{Kubernetes: &store.Kubernetes{ServiceAccount: text}}
	}
	for word, opts := range map[string]administration.TokenOptions{
		"--uses":       {Uses: -1},
		"--ttl":        {TTL: -1},
		`the key "-a"`: {Labels: map[string]string{"-a": "b"}},
		`value "b c"`:  {Labels: map[string]string{"a": "b c"}},

		`--kubernetes-issuer: "http://k8s"`: {Kubernetes: &store.Kubernetes{Issuer: "http://k8s"}},
		"--kubernetes-audience: is longer":  {Kubernetes: &store.Kubernetes{Audience: strings.Repeat("a", 600)}},
		"--kubernetes-jwks: it is not":      {Kubernetes: &store.Kubernetes{}},
		`--service-account: "pipeops"`:      account("pipeops"),
		`--service-account: "a:b:c"`:        account("a:b:c"),
		`--service-account: "a:*"`:          account("a:*"),
		`--service-account: ":b"`:           account(":b"),
	} {
		_, _, err := p.Tokens.Create(t.Context(), opts)
		admintest.Refused(t, err, problem.Invalid, word)
	}
}

func TestToken_Rotate(t *testing.T) {
	p := admintest.Open(t)
	opts := administration.TokenOptions{Name: "shops", Labels: map[string]string{"env": "prod"}, Uses: 3, TTL: 2 * time.Hour, Approve: true}
	token, old, err := p.Tokens.Create(t.Context(), opts)
	require.NoError(t, err)
	assert.Equal(t, "cp.example.com:8443", token.Address)
	p.Advance(time.Hour)
	_, _, err = p.Tokens.Rotate(t.Context(), old.ID, -time.Second, "")
	admintest.Refused(t, err, problem.Invalid, "--overlap")
	_, _, err = p.Tokens.Rotate(t.Context(), "none", 0, "")
	admintest.Refused(t, err, problem.NotFound, "token list")
	_, next, err := p.Tokens.Rotate(t.Context(), old.ID, time.Minute, "")
	require.NoError(t, err)
	want := old
	want.ID, want.Hash, want.CreatedAt, want.ExpiresAt = next.ID, next.Hash, p.Clock(), p.Clock().Add(2*time.Hour)
	assert.Equal(t, want, next, "it has the original limits")
	_, _, err = p.Tokens.Rotate(t.Context(), old.ID, 0, "")
	admintest.Refused(t, err, problem.Conflict, "successor is "+next.ID)

	require.NoError(t, p.Tokens.Revoke(t.Context(), next.ID))
	_, _, err = p.Tokens.Rotate(t.Context(), next.ID, 0, "")
	admintest.Refused(t, err, problem.Conflict, "revoked")
	admintest.Refused(t, p.Tokens.Revoke(t.Context(), "none"), problem.NotFound, "token list")
	tokens, err := p.Tokens.List(t.Context())
	require.NoError(t, err)
	states := map[string]string{}
	for _, k := range tokens {
		states[k.ID] = k.State(p.Clock().Add(time.Minute))
	}
	assert.Equal(t, map[string]string{old.ID: store.TokenRotated, next.ID: store.TokenRevoked}, states)
}

func TestAdmin_OpenRefuses(t *testing.T) {
	_, err := administration.Open(t.Context(), datadir.Data{Dir: t.TempDir()}, nil)
	require.ErrorContains(t, err, "not the data directory of a control plane")
	_, err = administration.Open(t.Context(), datadir.Data{}, nil)
	require.ErrorContains(t, err, "--data-dir: is empty")
}

func TestAdmin_NeverServed(t *testing.T) {
	admin, err := administration.Make(t.Context(), datadir.Data{Dir: t.TempDir()}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, admin.Close()) })
	_, err = admin.Operators.Create(t.Context(), administration.OperatorOptions{Name: "ada", Role: administration.RoleAdmin, TTL: time.Hour})
	require.ErrorIs(t, err, datadir.ErrNeverServed)
	_, err = admin.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ci", TTL: time.Hour})
	require.ErrorIs(t, err, datadir.ErrNeverServed)
	token, _, err := admin.Tokens.Create(t.Context(), administration.TokenOptions{})
	require.NoError(t, err)
	assert.Empty(t, token.Address)
}
