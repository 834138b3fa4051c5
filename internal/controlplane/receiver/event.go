package receiver

import (
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// eventHeaders name the event. Gitea and Forgejo send GitHub's, too.
var eventHeaders = []string{"X-Github-Event", "X-Gitlab-Event", "X-Event-Key"}

// maxEvent bounds the name of an event that is kept.
const maxEvent = 64

// eventOf returns the name of the event; empty if the sender names none.
func eventOf(h http.Header) string {
	for _, name := range eventHeaders {
		if event := h.Get(name); event != "" {
			return printable.Line(event[:min(len(event), maxEvent)], false)
		}
	}
	return ""
}

// moves reports whether an event may say that a branch, a tag, or a pull or merge request has
// another commit. So may one without a name.
func moves(event string) bool {
	event = strings.ToLower(event)
	for _, word := range []string{"push", "pull", "merge", "tag", "create", "delete"} {
		if strings.Contains(event, word) {
			return true
		}
	}
	return event == ""
}

// payload is what of an event's body matters: the commit that was pushed.
type payload struct {
	After       string `json:"after"` // GitHub, Gitea, Forgejo, GitLab
	CheckoutSHA string `json:"checkout_sha"`
	Push        struct {
		Changes []struct {
			New struct {
				Target struct {
					Hash string `json:"hash"`
				} `json:"target"`
			} `json:"new"`
		} `json:"changes"`
	} `json:"push"` // Bitbucket
}

var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// commitOf returns the commit that an event names; empty for none, and for a body that cannot be
// read: the look finds out by itself.
func commitOf(h http.Header, body []byte) string {
	if kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")); kind == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return ""
		}
		body = []byte(form.Get("payload"))
	}
	var p payload
	if err := ofEvents.JSON(body, &p); err != nil {
		return ""
	}
	found := []string{p.After, p.CheckoutSHA}
	for _, change := range p.Push.Changes {
		found = append(found, change.New.Target.Hash)
	}
	for _, commit := range found {
		if commitID.MatchString(commit) && strings.Trim(commit, "0") != "" {
			return commit
		}
	}
	return ""
}

// ofEvents bounds what the values of a body take.
var ofEvents = decode.LimitsFor(maxBody)
