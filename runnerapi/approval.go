package runnerapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// CodeApprovalRequired is the code of a command that the cluster's owner has to approve first.
const CodeApprovalRequired = Code("approval_required") // 403

// Approval is a command that the cluster's owner can approve.
type Approval struct {
	ID        string    `json:"id"`
	Runner    string    `json:"runner"`
	Actor     string    `json:"actor,omitempty"` // who acts as the Runner
	Command   string    `json:"command"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	RequestID string    `json:"requestId"` // of the first call
	Asked     time.Time `json:"asked"`
	// Until is when the request, and an approval of it, expires.
	Until time.Time `json:"until"`
	// Request is the whole request that is carried out.
	Request ApprovalView `json:"request"`
	// Approved is when the owner approved it; nil as long as it waits.
	Approved *time.Time `json:"approved,omitempty"`
}

// ApprovalView is the whole of a request, except that secret values are replaced by their length.
type ApprovalView struct {
	Method  string              `json:"method"`
	Path    string              `json:"path"`
	Query   map[string][]string `json:"query,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`
	// User and Groups are the identity with which the Kubernetes API is used.
	User   string   `json:"user,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Body is the body as JSON; of manifests, the list of all documents.
	Body json.RawMessage `json:"body,omitempty"`
	// BodyBytes is the length of the body as it was sent, in bytes.
	BodyBytes int `json:"bodyBytes,omitempty"`
	// Unseen is why not all of the request is shown; empty if all of it is.
	Unseen string `json:"unseen,omitempty"`
}

// By returns who sent the command: the Runner, and the operator who acted as it.
func (a Approval) By() string { return by(a.Runner, a.Actor) }

// Lines returns the whole request as text, one part a line.
func (v ApprovalView) Lines() []string {
	lines := []string{v.Method + " " + v.Path}
	if v.User != "" {
		lines = append(lines, fmt.Sprintf("as user %q, groups %q", v.User, v.Groups))
	}
	for _, part := range []struct {
		name   string
		values map[string][]string
	}{{"query", v.Query}, {"header", v.Headers}} {
		for _, key := range slices.Sorted(maps.Keys(part.values)) {
			lines = append(lines, fmt.Sprintf("%s %s: %s", part.name, keyText(key), quoted(part.values[key])))
		}
	}
	if len(v.Body) > 0 {
		lines = append(lines, "body: "+string(v.Body))
	}
	if v.Unseen != "" {
		lines = append(lines, "NOT ALL IS SHOWN: "+v.Unseen)
	}
	return lines
}

// plainKey matches the keys that are shown as they are.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// keyText shows where a key ends: a Runner can send any text as the key of a query.
func keyText(key string) string {
	if plainKey.MatchString(key) {
		return key
	}
	return strconv.Quote(key)
}

// quoted shows where each text ends.
func quoted(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = fmt.Sprintf("%q", text)
	}
	return cmp.Or(strings.Join(all, " "), `""`)
}

// ApprovalRequired returns the refusal of a command that has no approval and cannot wait for one.
func ApprovalRequired(rule string) *Error {
	return problem.New(http.StatusForbidden, CodeApprovalRequired,
		"send the command by itself: only a command of a Runner can be approved",
		"rule %q of the customer's policy requires an approval by the owner of the cluster", rule)
}
