package provider

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// operator writes credentials of an operator to a file.
func operator(t *testing.T, p *planetest.Plane, role string) string {
	t.Helper()
	creds, err := p.Operators.Create(t.Context(), administration.OperatorOptions{Name: "terraform-" + role, Role: role, TTL: 24 * time.Hour})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "operator.json")
	require.NoError(t, creds.Write(file))
	return file
}

func started(t *testing.T, change ...func(*controlplane.Config)) (*planetest.Plane, *core) {
	t.Helper()
	p := planetest.Start(t, change...)
	return p, newCore(t, object{"operator_credentials_file": operator(t, p, administration.RoleOperator)})
}

func TestToken(t *testing.T) {
	p, c := started(t)
	const kind = "pipeops_token"
	config := object{"name": "shops", "labels": object{"env": "prod"}, "uses": 2, "ttl": "1h"}
	made := c.put(kind, nil, config)
	id := text(t, made.value, "id")
	assert.Contains(t, text(t, made.value, "token"), id)
	kept, err := p.Tokens.List(t.Context())
	require.NoError(t, err)
	require.Len(t, kept, 1)
	assert.Equal(t, map[string]string{"env": "prod"}, kept[0].Labels)
	assert.Equal(t, 2, kept[0].MaxUses)

	same, wrong := c.plan(kind, made, object{"name": "shops", "labels": object{"env": "prod"}, "uses": 2, "ttl": "60m"})
	require.Empty(t, wrong)
	assert.False(t, same.replaces(), "an hour is an hour")
	for name, value := range map[string]any{"name": "others", "labels": object{}, "uses": nil, "ttl": "2h", "approve": true} {
		changed := object{name: value}
		for other, same := range config {
			if other != name {
				changed[other] = same
			}
		}
		another, wrong := c.plan(kind, made, changed)
		require.Empty(t, wrong)
		assert.True(t, another.replaces(), name)
	}
	_, wrong = c.plan(kind, nil, object{"ttl": "soon"})
	assert.Contains(t, wrong[0], `AttributeName("ttl")`)

	known := c.imported(kind, id)
	assert.Empty(t, text(t, known.value, "token"), "its secret is nowhere")
	again, wrong := c.plan(kind, known, config)
	require.Empty(t, wrong)
	assert.False(t, again.replaces())

	p.Clock.Advance(2 * time.Hour)
	require.NotNil(t, c.refresh(made), "nothing is replaced for a token that has expired")
	require.Empty(t, c.destroy(made))
	assert.Nil(t, c.refresh(made), "it was revoked")
	require.Empty(t, c.destroy(made), "there is nothing left to do")
}

func TestRunner(t *testing.T) {
	p, c := started(t)
	const kind = "pipeops_runner"
	config := object{"name": "builder", "agents": "env=prod"}
	made := c.put(kind, nil, config)
	first, err := credentials.Parse([]byte(text(t, made.value, "credentials")))
	require.NoError(t, err)
	assert.Equal(t, "builder", first.Runner)
	assert.Equal(t, p.URL(), text(t, made.value, "control_plane_url"))
	assert.Equal(t, "24h0m0s", text(t, made.value, "ttl"))

	_, wrong := c.plan(kind, nil, config)
	require.Empty(t, wrong)
	twice, wrong := c.plan(kind, nil, config)
	require.Empty(t, wrong)
	_, wrong = c.apply(twice)
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], "there is a Runner builder already")
	assert.Contains(t, wrong[0], "fix: import it")
	assert.Contains(t, wrong[0], "conflict")

	// Another grant, and new credentials with it.
	config["agents"] = "env=test"
	changed := c.put(kind, made, config)
	second, err := credentials.Parse([]byte(text(t, changed.value, "credentials")))
	require.NoError(t, err)
	assert.NotEqual(t, first.Certificate, second.Certificate)
	config["agents"] = "env in (prod"
	invalid, wrong := c.plan(kind, changed, config)
	require.Empty(t, wrong)
	_, wrong = c.apply(invalid)
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], `AttributeName("agents")`)
	assert.Contains(t, wrong[0], "write a Kubernetes label selector")

	grant, err := credentials.ParseGrant("env=other")
	require.NoError(t, err)
	_, err = p.Runners.Grant(t.Context(), "builder", grant, "", nil)
	require.NoError(t, err)
	assert.Equal(t, "env=other", text(t, c.refresh(changed).value, "agents"), "the plan shows what others changed")
	assert.Equal(t, "env=other", text(t, c.imported(kind, "builder").value, "agents"))

	require.Empty(t, c.destroy(changed))
	assert.Nil(t, c.refresh(changed))
	config["agents"] = "env=prod"
	c.put(kind, nil, config) // the name of a revoked one
}

// TestRunner_OpenID binds a Runner to ID tokens: the state has no secret.
func TestRunner_OpenID(t *testing.T) {
	p, c := started(t)
	const kind = "pipeops_runner"
	binding := object{"issuer": "https://token.actions.githubusercontent.com", "claims": object{"repository": "shop/web", "environment": "prod"}}
	config := object{"name": "ci", "openid": binding}
	made := c.put(kind, nil, config)
	assert.Empty(t, text(t, made.value, "credentials"))
	assert.Len(t, text(t, made.value, "ca_fingerprint"), 64)
	assert.Equal(t, p.URL(), text(t, fields(t, made.value)["openid"], "audience"))
	runners, err := p.Runners.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"repository": "shop/web", "environment": "prod"}, runners[0].OpenID.Claims)

	known := c.imported(kind, "ci")
	same, wrong := c.plan(kind, known, config)
	require.Empty(t, wrong)
	assert.False(t, same.replaces(), "an import has all that the configuration has")
	binding["claims"] = object{"repository": "shop/api"}
	another, wrong := c.plan(kind, made, config)
	require.Empty(t, wrong)
	assert.True(t, another.replaces())
	config["ttl"], config["name"] = "1h", "other"
	refused, wrong := c.plan(kind, nil, config)
	require.Empty(t, wrong)
	_, wrong = c.apply(refused)
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], `AttributeName("ttl")`)
}

func TestWebhook(t *testing.T) {
	p, c := started(t)
	const kind = "pipeops_webhook"
	config := object{"name": "ops", "url": "https://hooks.example.com/7", "types": []string{"app.failed", "app.healthy"}, "agents": "env=prod"}
	made := c.put(kind, nil, config)
	assert.NotEmpty(t, text(t, made.value, "secret"))
	config["url"], config["types"] = "https://hooks.example.com/8", []string{"app.*"}
	changed := c.put(kind, made, config)
	assert.Equal(t, text(t, made.value, "secret"), text(t, changed.value, "secret"))
	hooks, err := p.Webhooks.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"app.*"}, hooks[0].Types)
	same, wrong := c.plan(kind, c.imported(kind, "ops"), config)
	require.Empty(t, wrong)
	assert.False(t, same.replaces())
	config["format"] = "telegram"
	refused, wrong := c.plan(kind, changed, config)
	require.Empty(t, wrong)
	_, wrong = c.apply(refused)
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], `AttributeName("format")`)
	require.NoError(t, p.Webhooks.Delete(t.Context(), "ops"))
	assert.Nil(t, c.refresh(changed))
	require.Empty(t, c.destroy(changed))
}

// TestOperator_Refused: errors keep their code, their fix and the ID of the call.
func TestOperator_Refused(t *testing.T) {
	p := planetest.Start(t)
	viewer := newCore(t, object{"operator_credentials_file": operator(t, p, administration.RoleViewer)})
	plan, wrong := viewer.plan("pipeops_token", nil, object{})
	require.Empty(t, wrong)
	_, wrong = viewer.apply(plan)
	require.Len(t, wrong, 1)
	for _, says := range []string{"Cannot create the token", "fix: ", "code: PO-", "forbidden", "request "} {
		assert.Contains(t, wrong[0], says)
	}
	t.Setenv(envOperator, "")
	none := newCore(t, object{})
	plan, wrong = none.plan("pipeops_token", nil, object{})
	require.Empty(t, wrong)
	_, wrong = none.apply(plan)
	require.Len(t, wrong, 1)
	assert.Contains(t, wrong[0], "fix: set operator_credentials_file")

	t.Setenv(envOperator, operator(t, p, administration.RoleOperator))
	newCore(t, object{}).put("pipeops_token", nil, object{})
	content, err := os.ReadFile(os.Getenv(envOperator))
	require.NoError(t, err)
	newCore(t, object{"operator_credentials": string(content)}).put("pipeops_token", nil, object{})
}
