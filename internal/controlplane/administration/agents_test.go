package administration_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/admintest"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

func TestAgent_LabelAndRevoke(t *testing.T) {
	p := admintest.Open(t)
	p.Agent(t, "shop", func(a *store.Agent) { a.Labels = map[string]string{"env": "dev"} })
	p.Agent(t, "bank")
	labelled, err := p.Agents.Label(t.Context(), "shop", map[string]string{"team": "pay"}, []string{"env"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"team": "pay"}, labelled.Labels)
	_, err = p.Agents.Label(t.Context(), "id-bank", map[string]string{"team": "pay"}, nil)
	require.NoError(t, err)
	_, err = p.Agents.Label(t.Context(), "shop", map[string]string{"a b": "c"}, nil)
	admintest.Refused(t, err, problem.Invalid, "not a valid Kubernetes label")

	_, err = p.Agents.Remove(t.Context(), "shop")
	admintest.Refused(t, err, problem.Conflict, "agent revoke id-shop")
	revoked, err := p.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err)
	assert.Equal(t, announce.StateRevoked, revoked.State)
	_, err = p.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err, "again")
	_, err = p.Agents.Label(t.Context(), "id-shop", nil, []string{"team"})
	admintest.Refused(t, err, problem.Conflict, "is revoked")
	assert.Equal(t, []announce.Type{
		announce.AgentRemoved, announce.AgentUpdated, // for Runners that see the agent no more, and for the others
		announce.AgentRemoved, announce.AgentUpdated,
		announce.AgentRemoved,
	}, p.Announced(t))
	detail, err := p.Agents.Get(t.Context(), "id-shop", 10)
	require.NoError(t, err)
	assert.Equal(t, announce.StateRevoked, detail.Agent.State)

	_, err = p.Agents.Remove(t.Context(), "id-shop")
	require.NoError(t, err)
	list, err := p.Agents.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "bank", list[0].Name)
	for _, call := range []func() error{
		func() error { _, err := p.Agents.Get(t.Context(), "shop", 1); return err },
		func() error { _, err := p.Agents.Revoke(t.Context(), "shop"); return err },
		func() error { _, err := p.Agents.Remove(t.Context(), "shop"); return err },
		func() error { _, err := p.Agents.Label(t.Context(), "shop", nil, nil); return err },
		func() error { _, err := p.Agents.Audit(t.Context(), "shop", runnerapi.AuditFilter{}); return err },
		func() error { _, err := p.Agents.Timeline(t.Context(), "shop", announce.TimelineQuery{}); return err },
		func() error { _, err := p.Gateway.Grant(t.Context(), "www.example.com", "shop"); return err },
		func() error { _, err := p.Gateway.Routes(t.Context(), "shop"); return err },
	} {
		admintest.Refused(t, call(), problem.NotFound, "agent list")
	}
}

func TestHostGrant(t *testing.T) {
	p := admintest.Open(t)
	p.Agent(t, "shop")
	for _, host := range []string{"", "localhost", "*.*.example.com", "a..example.com", strings.Repeat("a.", 127) + "com"} {
		_, err := p.Gateway.Grant(t.Context(), host, "shop")
		admintest.Refused(t, err, problem.Invalid, "www.example.com")
	}
	_, err := p.Gateway.Grant(t.Context(), "*.Example.com.", "shop")
	require.NoError(t, err)
	grants, err := p.Gateway.Grants(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []store.HostGrant{{Host: "*.example.com", AgentID: "id-shop", GrantedAt: p.Clock()}}, grants)
	require.NoError(t, p.Gateway.Take(t.Context(), "*.EXAMPLE.com"))
	admintest.Refused(t, p.Gateway.Take(t.Context(), "*.example.com"), problem.NotFound, "gateway grant list")
}

func TestWebhook_CreateRefuses(t *testing.T) {
	p := admintest.Open(t)
	_, err := p.Webhooks.Create(t.Context(), administration.WebhookOptions{Name: "pager", URL: "https://hooks.example.com/in"})
	require.NoError(t, err)
	for word, c := range map[string]struct {
		opts administration.WebhookOptions
		code problem.Code
	}{
		"not a valid webhook name": {administration.WebhookOptions{Name: "Pager", URL: "https://hooks.example.com/in"}, problem.Invalid},
		"is not https":             {administration.WebhookOptions{Name: "plain", URL: "http://hooks.example.com/in"}, problem.Invalid},
		"no.such.type":             {administration.WebhookOptions{Name: "types", URL: "https://hooks.example.com/in", Types: []string{"no.such.type"}}, problem.Invalid},
		"webhook pager already":    {administration.WebhookOptions{Name: "pager", URL: "https://hooks.example.com/in"}, problem.Conflict},
	} {
		_, err := p.Webhooks.Create(t.Context(), c.opts)
		admintest.Refused(t, err, c.code, word)
	}
}

func TestWebhook_RotateAndDelete(t *testing.T) {
	p := admintest.Open(t)
	var got http.Header
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	t.Cleanup(receiver.Close)
	first, err := p.Webhooks.Create(t.Context(), administration.WebhookOptions{Name: "pager", URL: receiver.URL, AllowHTTP: true, AllowPrivate: true})
	require.NoError(t, err)
	next, err := p.Webhooks.Rotate(t.Context(), "pager")
	require.NoError(t, err)
	assert.Equal(t, first.Secret, next.Previous)
	assert.NotEqual(t, first.Secret, next.Secret)
	assert.Equal(t, p.Clock().Add(24*time.Hour), next.PreviousUntil)
	result, err := p.Webhooks.Test(t.Context(), "pager", webhook.Options{})
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, result.Status)
	assert.Len(t, strings.Fields(got.Get("Webhook-Signature")), 2, "signed with both secrets")
	require.NoError(t, p.Webhooks.Enable(t.Context(), "pager"))
	list, err := p.Webhooks.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Empty(t, list[0].Secret+list[0].Previous)

	require.NoError(t, p.Webhooks.Delete(t.Context(), "pager"))
	admintest.Refused(t, p.Webhooks.Delete(t.Context(), "pager"), problem.NotFound, "webhook list")
	admintest.Refused(t, p.Webhooks.Enable(t.Context(), "pager"), problem.NotFound, "webhook list")
	_, err = p.Webhooks.Deliveries(t.Context(), "pager", "", 1)
	admintest.Refused(t, err, problem.NotFound, "webhook list")
}

func TestOffer_CreateRefuses(t *testing.T) {
	p := admintest.Open(t)
	p.Agent(t, "shop")
	file := release.File{Name: "pipeops-agent", SHA256: strings.Repeat("a", 64), Size: 1, Kind: release.KindAgent, OS: "linux", Arch: "amd64"}
	offer := func(change func(*administration.ReleaseOptions)) (store.Release, error) {
		o := administration.ReleaseOptions{Trust: releasetest.Trust(t), URL: "https://downloads.example.com/v1.2.0/"}
		o.Manifest, o.Signature = releasetest.Sign(t, release.Manifest{Version: "v1.2.0", Commit: "abc", Files: []release.File{file}, Expires: p.Clock().Add(time.Hour)})
		change(&o)
		return p.Releases.Offer(t.Context(), o)
	}
	for _, c := range []struct {
		code   problem.Code
		word   string
		change func(*administration.ReleaseOptions)
	}{
		{problem.Invalid, "signature", func(o *administration.ReleaseOptions) { o.Signature = nil }},
		{problem.Invalid, "not an https URL", func(o *administration.ReleaseOptions) { o.URL = "http://downloads.example.com" }},
		{problem.Invalid, "a user, a query", func(o *administration.ReleaseOptions) { o.URL = "https://me@downloads.example.com" }},
		{problem.Invalid, "label", func(o *administration.ReleaseOptions) { o.Labels = map[string]string{"": "x"} }},
		{problem.NotFound, "agent list", func(o *administration.ReleaseOptions) { o.Agents = []string{"bank"} }},
		{problem.Invalid, "expired", func(*administration.ReleaseOptions) { p.Advance(2 * time.Hour) }},
	} {
		_, err := offer(c.change)
		admintest.Refused(t, err, c.code, c.word)
	}
	for _, agents := range [][]string{{"shop"}, nil} {
		made, err := offer(func(o *administration.ReleaseOptions) { o.Agents = agents })
		require.NoError(t, err)
		assert.Equal(t, "https://downloads.example.com/v1.2.0", made.URL)
	}
	withdrawn, err := p.Releases.Withdraw(t.Context(), "v1.2.0")
	require.NoError(t, err)
	assert.Len(t, withdrawn, 2)
	_, err = p.Releases.Withdraw(t.Context(), "v1.2.0")
	admintest.Refused(t, err, problem.NotFound, "offer list")
}
