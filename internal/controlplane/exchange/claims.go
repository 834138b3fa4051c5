package exchange

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// maxShown bounds a value of a token in an error, in bytes.
const maxShown = 200

// ActorPrefix begins the name of an actor that an ID token has proven. No operator has such a name.
const ActorPrefix = "oidc/"

// claims are the claims of a verified token.
type claims struct{ openid.Claims }

// list returns the values of a claim as texts: one, or those of a list.
func (c claims) list(name string) []string {
	var list []json.RawMessage
	if json.Unmarshal(c.Claims[name], &list) != nil {
		list = []json.RawMessage{c.Claims[name]}
	}
	var texts []string
	for _, value := range list {
		var text string
		switch {
		case json.Unmarshal(value, &text) == nil:
			texts = append(texts, text)
		case len(value) > 0 && value[0] != '{' && value[0] != '[': // a number or a boolean
			texts = append(texts, string(value))
		}
	}
	return texts
}

// match refuses a token unless each claim has its value, or a list with it.
func (c claims) match(want map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		values := c.list(name)
		if slices.Contains(values, want[name]) {
			continue
		}
		got := "is missing"
		if len(values) > 0 {
			got = fmt.Sprintf("is %q", printable.Shorten(strings.Join(values, ", "), maxShown))
		}
		return problem.Errorf(problem.Unauthorized, "run the job where the claim has that value, or have an operator bind the Runner to the other one",
			"the claim %s of the ID token %s, and the Runner is bound to %q", name, got, want[name])
	}
	return nil
}

// described are the claims that tell a job from others, by what they tell: of GitHub, then of
// GitLab, then of others. The number bounds the value, in bytes.
var described = []struct {
	what  string
	names []string
	most  int
}{
	{"repository", []string{"repository", "project_path"}, 80},
	{"workflow", []string{"workflow_ref", "ci_config_ref_uri", "workflow"}, 120},
	{"commit", []string{"sha", "commit"}, 64},
	{"person", []string{"actor", "user_login", "email"}, 64},
}

// actor names who acts as the Runner, for audit logs: "oidc/SUB repository=shop/web ...".
func (c claims) actor(subject string) string {
	parts := []string{ActorPrefix + word(subject, 120)}
	for _, d := range described {
		for _, name := range d.names {
			if value, ok := c.Text(name); ok && value != "" {
				parts = append(parts, d.what+"="+word(value, d.most))
				break
			}
		}
	}
	return printable.Shorten(strings.Join(parts, " "), credentials.MaxActor-len("…"))
}

// word quotes a value that could pass for more than one.
func word(value string, most int) string {
	value = printable.Shorten(value, most)
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+…"
	if strings.Trim(value, plain) == "" {
		return value
	}
	return strconv.Quote(value)
}
