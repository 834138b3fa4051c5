package webhook

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// chat is a chat service that keeps what it gets.
func chat(t *testing.T) (server *httptest.Server, got <-chan string) {
	t.Helper()
	bodies := make(chan string, 10)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if assert.NoError(t, err) && assert.Equal(t, "application/json", r.Header.Get("Content-Type")) {
			bodies <- string(body)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	return server, bodies
}

func failed(t *testing.T) announce.Event {
	t.Helper()
	e, err := announce.NewAppEvent(announce.AppFailed, announce.SourceOf("i", "a1"), "a1", announce.AppEvent{
		Namespace: "production", Name: "web", Replicas: 2, Cause: "ImageNotFound", Message: "no <image> @here *now*", Fix: "push it",
	}, 7, time.Now())
	require.NoError(t, err)
	return e
}

// TestFormat_Bodies: each service gets the body that docs/operator/webhooks.md and the service
// describe, and nothing in an App's message is taken for a mention.
func TestFormat_Bodies(t *testing.T) {
	const link = "https://cp.example.com/console/agents/a1/app?app=web\\u0026namespace=production"
	for format, want := range map[string]string{
		FormatSlack: `{"text":"*App production/web on a1: failed*\nImageNotFound: no &lt;image&gt; @here *now*\n*Fix:* push it\n<https://cp.example.com/console/agents/a1/app?app=web&amp;namespace=production|Open in the console>","unfurl_links":false}`,
		FormatDiscord: `{"embeds":[{"title":"App production/web on a1: failed","description":"ImageNotFound: no \\<image> @here \\*now\\*\n**Fix:** push it","url":"` + link + `"}],
			"allowed_mentions":{"parse":[]}}`,
		FormatTeams: `{"type":"message","attachments":[{"contentType":"application/vnd.microsoft.card.adaptive","content":{
			"$schema":"http://adaptivecards.io/schemas/adaptive-card.json","type":"AdaptiveCard","version":"1.4",
			"body":[{"type":"RichTextBlock","inlines":[{"type":"TextRun","text":"App production/web on a1: failed","weight":"Bolder"}]},
				{"type":"RichTextBlock","inlines":[{"type":"TextRun","text":"ImageNotFound: no <image> @here *now*"}]},
				{"type":"RichTextBlock","inlines":[{"type":"TextRun","text":"Fix: ","weight":"Bolder"},{"type":"TextRun","text":"push it"}]}],
			"actions":[{"type":"Action.OpenUrl","title":"Open in the console","url":"` + link + `"}]}}]}`,
	} {
		server, got := chat(t)
		s := NewSender(store.Webhook{Name: "team", URL: server.URL, AllowHTTP: true, Secret: NewSecret(), Format: format}, Options{Console: func() string { return "https://cp.example.com/console" }})
		e := failed(t)
		body, err := e.Encode()
		require.NoError(t, err)
		require.NoError(t, s.Send(t.Context(), e.ID, body).Err, format)
		assert.JSONEq(t, want, <-got, format)
		require.NoError(t, s.Send(t.Context(), "test", []byte(`{"specversion":"1.0","type":"`+TypeTest+`"}`)).Err)
		assert.Contains(t, <-got, "Test of webhook team", format)
		require.ErrorContains(t, s.Send(t.Context(), "none", []byte(`{}`)).Err, "cannot be read")
		s.Close()
	}
	assert.Error(t, CheckFormat("irc"))
	for _, format := range append(Formats, "") {
		assert.NoError(t, CheckFormat(format))
	}
}

// TestFormat_Bounded: what an agent states does not grow a notice beyond what services take.
func TestFormat_Bounded(t *testing.T) {
	e := failed(t)
	text, err := json.Marshal(announce.AppEvent{Namespace: "n", Name: strings.Repeat("a", 500), Cause: "C", Message: strings.Repeat("*", 9000), Fix: strings.Repeat("_", 9000)})
	require.NoError(t, err)
	e.Data = text
	n := newNotice(e, "shop", "")
	assert.Empty(t, n.Link)
	embed := discordOf(n).(map[string]any)["embeds"].([]any)[0].(map[string]any)
	assert.LessOrEqual(t, len(embed["title"].(string)), 256)
	assert.LessOrEqual(t, len(embed["description"].(string)), 4096)
}

func TestNotice_EachType(t *testing.T) {
	source := announce.SourceOf("i", "a1")
	event := func(e announce.Event, err error) announce.Event {
		t.Helper()
		require.NoError(t, err)
		return e
	}
	for want, e := range map[string]announce.Event{
		"Agent shop: offline": event(announce.NewAgentEvent(announce.AgentOffline, source, announce.Agent{ID: "a1", Name: "shop", State: announce.StateOffline}, 1, time.Now())),
		"Host shop.example.com on shop: suspended, DNS is wrong": event(announce.NewRouteEvent(announce.RouteSuspended, source, "a1", announce.RouteEvent{Host: "shop.example.com", Reason: "DNS is wrong"}, 1, time.Now())),
		"Alert DiskFull on shop: firing, warning: 91 % used":     event(announce.NewAlertEvent(announce.AlertFiring, source, "a1", announce.AlertEvent{Fingerprint: "f", Name: "DiskFull", Severity: "warning", Summary: "91 % used", StartedAt: time.Now()}, 1, time.Now())),
	} {
		n := newNotice(e, "shop", "https://cp/console")
		text := n.Title
		if n.Text != "" {
			text += ", " + n.Text
		}
		assert.Equal(t, want, text)
		assert.Equal(t, "https://cp/console/agents/a1", n.Link)
	}
}

// TestFormat_Delivered: events that were queued arrive as notices, also those of a deleted agent.
func TestFormat_Delivered(t *testing.T) {
	w := newWorld(t)
	server, got := chat(t)
	require.NoError(t, w.store.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutWebhook(t.Context(), store.Webhook{Name: "team", URL: server.URL, Format: FormatSlack, AllowHTTP: true, Secret: NewSecret(), CreatedAt: time.Now()})
	}))
	w.run(w.dispatcher())
	w.say("a1", 1, 1)
	var body string
	await.Until(t, "the notice", func() bool {
		select {
		case body = <-got:
			return true
		default:
			return false
		}
	})
	assert.Contains(t, body, `"text":"*App n/web on a1: failed*`)
}
