package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// The formats of requests. All but the first are what a chat service takes at its incoming webhook.
//
// Each is one function here, and not a library of notifiers: shoutrrr and its like make their
// own HTTP clients, which would bypass the guard of addresses, the timeouts and the retries.
const (
	FormatCloudEvents = "cloudevents"
	FormatSlack       = "slack"
	FormatDiscord     = "discord"
	FormatTeams       = "teams"
)

// Formats are those that a webhook may have; the first is the default.
var Formats = []string{FormatCloudEvents, FormatSlack, FormatDiscord, FormatTeams}

// chats are the formats that people read.
var chats = map[string]func(notice) any{FormatSlack: slackOf, FormatDiscord: discordOf, FormatTeams: teamsOf}

// CheckFormat returns an error for an unknown format. An empty one is the default.
func CheckFormat(format string) error {
	if format != "" && !slices.Contains(Formats, format) {
		return fmt.Errorf("--format: %q is not a format; there are %s", format, strings.Join(Formats, ", "))
	}
	return nil
}

// formatted returns a request's body and its type, for an event.
func (s *Sender) formatted(ctx context.Context, event []byte) (body []byte, kind string, err error) {
	chat := chats[s.hook.Format]
	if chat == nil {
		return event, announce.ContentType, nil
	}
	n, err := s.noticeOf(ctx, event)
	if err != nil {
		return nil, "", err
	}
	body, err = json.Marshal(chat(n))
	return body, "application/json", err
}

// noticeOf returns an event, or a test, for people.
func (s *Sender) noticeOf(ctx context.Context, event []byte) (notice, error) {
	if e, err := announce.Decode(event); err == nil {
		name := e.AgentID
		if s.options.agentName != nil {
			name = cmp.Or(s.options.agentName(ctx, e.AgentID), name)
		}
		console := ""
		if s.options.Console != nil {
			console = s.options.Console()
		}
		return newNotice(e, name, console), nil
	}
	var test struct{ Type string }
	if err := json.Unmarshal(event, &test); err != nil || test.Type != TypeTest {
		return notice{}, fmt.Errorf("the event cannot be read as one of %s", FormatCloudEvents)
	}
	return notice{Title: "Test of webhook " + s.hook.Name, Text: "Events arrive here from now on."}, nil
}

// slackOf returns what a Slack app's incoming webhook takes.
func slackOf(n notice) any {
	// Slack reads &, < and > as its own; a mention, such as <!channel>, needs them.
	safe := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
	lines := []string{"*" + safe(n.Title) + "*"}
	if n.Text != "" {
		lines = append(lines, safe(n.Text))
	}
	if n.Fix != "" {
		lines = append(lines, "*Fix:* "+safe(n.Fix))
	}
	if n.Link != "" {
		lines = append(lines, "<"+safe(n.Link)+"|Open in the console>")
	}
	return map[string]any{"text": strings.Join(lines, "\n"), "unfurl_links": false}
}

// discordOf returns what a Discord channel's webhook takes.
func discordOf(n notice) any {
	plain := strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "~", `\~`, "`", "\\`", "|", `\|`, "[", `\[`, "]", `\]`, "<", `\<`, "#", `\#`).Replace
	text := plain(n.Text)
	if n.Fix != "" {
		text += "\n**Fix:** " + plain(n.Fix)
	}
	embed := map[string]any{"title": plain(n.Title), "description": strings.TrimSpace(text)}
	if n.Link != "" {
		embed["url"] = n.Link
	}
	return map[string]any{"embeds": []any{embed}, "allowed_mentions": map[string]any{"parse": []string{}}}
}

// teamsOf returns an Adaptive Card, which a workflow of Microsoft Teams takes.
func teamsOf(n notice) any {
	text := func(text string, more ...any) map[string]any { // which has no Markdown
		return map[string]any{"type": "RichTextBlock", "inlines": append(more, map[string]any{"type": "TextRun", "text": text})}
	}
	title := text(n.Title)
	title["inlines"].([]any)[0].(map[string]any)["weight"] = "Bolder"
	blocks := []any{title}
	if n.Text != "" {
		blocks = append(blocks, text(n.Text))
	}
	if n.Fix != "" {
		blocks = append(blocks, text(n.Fix, map[string]any{"type": "TextRun", "text": "Fix: ", "weight": "Bolder"}))
	}
	card := map[string]any{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": blocks}
	if n.Link != "" {
		card["actions"] = []any{map[string]any{"type": "Action.OpenUrl", "title": "Open in the console", "url": n.Link}}
	}
	return map[string]any{"type": "message", "attachments": []any{
		map[string]any{"contentType": "application/vnd.microsoft.card.adaptive", "content": card},
	}}
}
