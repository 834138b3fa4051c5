package controlplane

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

const pushed = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"

// gitServer sends the webhooks of one source, as GitHub does.
type gitServer struct {
	p    *plane
	hook announce.SourceWebhook
	by   http.RoundTripper // nil for one that trusts our CA
}

// push returns the status of the answer to a push event.
func (g gitServer) push(commit string) int { return g.send("push", `{"after":"`+commit+`"}`) }

func (g gitServer) send(event, body string) int {
	g.p.t.Helper()
	req, err := http.NewRequestWithContext(g.p.t.Context(), http.MethodPost, g.hook.URL, strings.NewReader(body))
	require.NoError(g.p.t, err)
	mac := hmac.New(sha256.New, []byte(g.hook.Secret))
	mac.Write([]byte(body))
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("X-GitHub-Event", event)
	own := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: g.p.ca.Pool(), MinVersion: tls.VersionTLS13}}
	defer own.CloseIdleConnections()
	if g.by == nil {
		g.by = own
	}
	resp, err := g.by.RoundTrip(req)
	require.NoError(g.p.t, err)
	require.NoError(g.p.t, resp.Body.Close())
	return resp.StatusCode
}

// looks returns the looks in the answer to a heartbeat.
func (c *cluster) looks(acknowledged int64) []controlapi.Look {
	c.t.Helper()
	beat := c.heartbeat()
	beat.AcknowledgedLooks = acknowledged
	answer, err := c.client.Heartbeat(c.t.Context(), beat)
	require.NoError(c.t, err)
	return answer.Looks
}

func TestSourceWebhook_PushRequestsLook(t *testing.T) {
	t.Parallel()
	p := start(t)
	shop := p.registered("shop")
	ann := p.snapshotClient(p.issue("ann", ""))
	source := runnerapi.Key{Namespace: "shop", Name: "web"}
	hook, err := ann.SetSourceWebhook(t.Context(), shop.id.AgentID, source)
	require.NoError(t, err)
	require.NotEmpty(t, hook.Secret)
	server := gitServer{p: p, hook: hook}

	assert.Equal(t, http.StatusOK, server.send("ping", `{}`))
	assert.Empty(t, shop.looks(0))
	assert.Equal(t, http.StatusAccepted, server.push(pushed))
	var looks []controlapi.Look
	await.Until(t, "the agent gets the look", func() bool {
		looks = shop.looks(0)
		return len(looks) > 0
	})
	want := controlapi.Look{Number: looks[0].Number, Namespace: "shop", Source: "web", Runner: "ann", Commit: pushed}
	assert.Equal(t, []controlapi.Look{want}, looks)
	assert.Equal(t, looks, shop.looks(looks[0].Number-1), "again until it is acknowledged")
	shown, err := ann.SourceWebhook(t.Context(), shop.id.AgentID, source)
	require.NoError(t, err)
	assert.True(t, shown.Waiting)
	assert.Empty(t, shop.looks(looks[0].Number))
	shown, err = ann.SourceWebhook(t.Context(), shop.id.AgentID, source)
	require.NoError(t, err)
	assert.Equal(t, announce.SourceWebhook{URL: hook.URL, CreatedAt: hook.CreatedAt, CalledAt: shown.CalledAt, Event: "push", Commit: pushed}, shown)
	assert.False(t, shown.CalledAt.IsZero())
}

// TestSourceWebhook_Refused: what may not cause a look, or no longer.
func TestSourceWebhook_Refused(t *testing.T) {
	t.Parallel()
	p := start(t)
	shop := p.registered("shop")
	ann, bob := p.snapshotClient(p.issue("ann", "")), p.snapshotClient(p.issue("bob", ""))
	source := runnerapi.Key{Namespace: "shop", Name: "web"}
	set := func(c *announce.SnapshotClient) gitServer {
		t.Helper()
		hook, err := c.SetSourceWebhook(t.Context(), shop.id.AgentID, source)
		require.NoError(t, err)
		return gitServer{p: p, hook: hook}
	}
	old := set(ann)
	of := set(ann)
	assert.Equal(t, old.hook.URL, of.hook.URL)
	assert.Equal(t, http.StatusForbidden, old.push(pushed), "its secret was replaced")
	other := set(bob)
	assert.NotEqual(t, of.hook.URL, other.hook.URL)
	assert.Equal(t, http.StatusForbidden, gitServer{p: p, hook: announce.SourceWebhook{URL: of.hook.URL, Secret: other.hook.Secret}}.push(pushed), "another Runner's secret")
	assert.Equal(t, http.StatusNotFound, gitServer{p: p, hook: announce.SourceWebhook{URL: of.hook.URL + "x", Secret: of.hook.Secret}}.push(pushed))
	assert.Equal(t, http.StatusRequestEntityTooLarge, of.send("push", string(bytes.Repeat([]byte(" "), 6<<20))))

	require.NoError(t, bob.DeleteSourceWebhook(t.Context(), shop.id.AgentID, source))
	assert.Equal(t, http.StatusNotFound, other.push(pushed), "deleted")
	require.True(t, problem.Is(bob.DeleteSourceWebhook(t.Context(), shop.id.AgentID, source), problem.NotFound))
	other = set(bob)
	p.issue("bob", "env=prod")
	assert.Equal(t, http.StatusNotFound, other.push(pushed), "its Runner is granted the agent no longer")
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "ann"))
	assert.Equal(t, http.StatusNotFound, of.push(pushed), "its Runner is revoked")
	assert.Empty(t, shop.looks(0))

	_, err := p.snapshotClient(p.issue("carl", "env=prod")).SetSourceWebhook(t.Context(), shop.id.AgentID, source)
	require.True(t, problem.Is(err, problem.NotFound), "%v", err)
	_, err = p.snapshotClient(p.issue("dora", "")).SetSourceWebhook(t.Context(), shop.id.AgentID, runnerapi.Key{Namespace: "shop", Name: "Web"})
	require.True(t, problem.Is(err, problem.Invalid), "%v", err)
}

// TestSourceWebhook_Flood: hundreds of push events cause a few looks at a source, and the last
// event always causes one. Another source is looked at at once.
func TestSourceWebhook_Flood(t *testing.T) {
	t.Parallel()
	p := start(t)
	shop := p.registered("shop")
	ann := p.snapshotClient(p.issue("ann", ""))
	set := func(name string) gitServer {
		t.Helper()
		hook, err := ann.SetSourceWebhook(t.Context(), shop.id.AgentID, runnerapi.Key{Namespace: "shop", Name: name})
		require.NoError(t, err)
		return gitServer{p: p, hook: hook}
	}
	flooded, other := set("web"), set("api")
	numbers := map[int64]bool{}
	commitOf := func(i int) string { return strings.Repeat("0", 36) + strconv.Itoa(1000+i) }
	const pushes = 300
	for i := range pushes {
		require.Equal(t, http.StatusAccepted, flooded.push(commitOf(i)))
		for _, l := range shop.looks(0) {
			numbers[l.Number] = true
		}
	}
	assert.LessOrEqual(t, len(numbers), 10)
	require.Equal(t, http.StatusAccepted, other.push(pushed))
	await.Until(t, "the other source is looked at", func() bool {
		looks := shop.looks(0)
		return len(looks) == 2 && looks[1].Source == "api"
	})
	p.clock.forward(time.Minute)
	require.Equal(t, http.StatusAccepted, other.push(pushed)) // what wakes the waiting ones, too
	await.Until(t, "the last push leads to a look", func() bool {
		return slices.ContainsFunc(shop.looks(0), func(l controlapi.Look) bool { return l.Commit == commitOf(pushes-1) })
	})
}
