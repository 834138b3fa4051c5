package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// AgentQuery selects agents. Zero values select all.
type AgentQuery struct {
	// Search has words that an agent's name, ID, labels or versions all have, in any case.
	Search string
	// Selector is on the labels, in the syntax of grants, without comparisons of numbers.
	Selector credentials.Grant
	State    announce.State
	// Wrong selects agents that need attention.
	Wrong bool
	// ByUrgency orders agents that need attention first, and not by name alone.
	ByUrgency     bool
	Offset, Limit int
}

// urgency is 0 to 4 for agents that need attention, worst first. JSON in columns has no spaces.
const urgency = `CASE WHEN revoked_at <> 0 THEN 9 WHEN state = 'offline' THEN 0 WHEN clones NOT IN ('null', '[]') THEN 1
	WHEN self_update LIKE '%"state":"failed"%' THEN 2 WHEN checks LIKE '%"status":"failed"%' THEN 3
	WHEN components LIKE '%"ready":false%' THEN 4 WHEN state = 'pending' THEN 5 ELSE 6 END`

// searched is the text that AgentQuery.Search looks in.
const searched = `LOWER(name || ' ' || id || ' ' || labels || ' ' || agent_version || ' ' || kubernetes_version || ' ' || distribution || ' ' || provider)`

// FindAgents returns a page of the agents that a query selects, and how many it selects.
func (q agentTable) FindAgents(ctx context.Context, find AgentQuery) (page []Agent, total int, err error) {
	where, args := find.where()
	if err := q.q.QueryRowContext(ctx, `SELECT COUNT(*) FROM agents WHERE `+where, args...).Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("database: agents: %w", err)
	}
	limit := cmp.Or(find.Limit, max(total, 1))
	page, err = all(ctx, q.q, scanAgent, fmt.Sprintf(`SELECT %s FROM agents WHERE %s ORDER BY %s LIMIT $%d OFFSET $%d`,
		agentSelect, where, find.order(urgency), len(args)+1, len(args)+2), append(args, limit, find.Offset)...)
	return page, total, err
}

// AgentTrouble is the worst that is wrong with an agent.
type AgentTrouble string

// TroubleClone is that of an agent whose identity is in use twice.
const TroubleClone AgentTrouble = "identity in use twice"

// troubles are those of agents, by the numbers of urgency.
var troubles = []AgentTrouble{"offline", TroubleClone, "update failed", "check failed", "component not ready"}

// AgentState is an agent with its state alone.
type AgentState struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	State   announce.State `json:"state"`
	Trouble AgentTrouble   `json:"trouble,omitempty" doc:"The worst that is wrong, if anything is."`
	Value   string         `json:"value,omitempty" doc:"Value of the label by which the call groups agents."`
}

// AgentStatesFound are the agents that a query selects, and the keys of their labels.
type AgentStatesFound struct {
	Agents []AgentState
	Keys   []string
	Total  int
}

// FindAgentStates returns the states of the agents that a query selects, with the value of a label.
func (q agentTable) FindAgentStates(ctx context.Context, find AgentQuery, label string) (found AgentStatesFound, err error) {
	where, args := find.where()
	keys := map[string]bool{}
	scan := func(row scanner, a *AgentState) error {
		var labels map[string]string
		var urgent int
		err := row.Scan(&a.ID, &a.Name, &a.State, &urgent, document{&labels}, &found.Total)
		if urgent < len(troubles) {
			a.Trouble = troubles[urgent]
		}
		for key := range labels {
			keys[key] = true
		}
		a.Value = labels[label]
		return err
	}
	found.Agents, err = all(ctx, q.q, scan, fmt.Sprintf(`SELECT id, name, CASE WHEN revoked_at <> 0 THEN 'revoked' ELSE state END, %s AS urgent, labels, COUNT(*) OVER ()
		FROM agents WHERE %s ORDER BY %s LIMIT $%d OFFSET $%d`, urgency, where, find.order("urgent"), len(args)+1, len(args)+2),
		append(args, cmp.Or(find.Limit, math.MaxInt32), find.Offset)...)
	found.Keys = slices.Sorted(maps.Keys(keys))
	return found, err
}

// AgentsWrong returns how many agents need attention.
func (q agentTable) AgentsWrong(ctx context.Context) (n int, err error) {
	err = q.q.QueryRowContext(ctx, `SELECT COUNT(*) FROM agents WHERE `+urgency+` < 5`).Scan(&n)
	return n, err
}

func (f *AgentQuery) order(urgent string) string {
	if f.ByUrgency {
		return urgent + `, name, id`
	}
	return `name, id`
}

func (f *AgentQuery) where() (where string, args []any) {
	parts := []string{"1 = 1"}
	add := func(condition string, arg any) {
		args = append(args, arg)
		parts = append(parts, fmt.Sprintf(condition, len(args)))
	}
	for word := range strings.FieldsSeq(f.Search) {
		add(searched+` LIKE $%d ESCAPE '\'`, "%"+literal(strings.ToLower(word))+"%")
	}
	for _, r := range f.Selector.Requirements() {
		parts = append(parts, required(r, &args))
	}
	switch {
	case f.State == announce.StateRevoked:
		parts = append(parts, "revoked_at <> 0")
	case f.State != "":
		add("revoked_at = 0 AND state = $%d", f.State)
	}
	if f.Wrong {
		parts = append(parts, urgency+" < 5")
	}
	return strings.Join(parts, " AND "), args
}

// required returns the condition of a requirement on the labels, and adds its arguments. An agent
// without a label meets != and notin, as everywhere in Kubernetes.
func required(r labels.Requirement, args *[]any) string {
	contains := func(text string) string { // SQLite's LIKE takes capital and small letters for the same
		*args = append(*args, text)
		return fmt.Sprintf("REPLACE(labels, $%d, '') <> labels", len(*args))
	}
	equal := make([]string, 0, len(r.Values()))
	for _, value := range slices.Sorted(maps.Keys(r.Values())) {
		equal = append(equal, contains(fmt.Sprintf("%q:%q", r.Key(), value)))
	}
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return "(" + strings.Join(equal, " OR ") + ")"
	case selection.NotEquals, selection.NotIn:
		return "NOT (" + strings.Join(equal, " OR ") + ")"
	case selection.Exists:
		return contains(fmt.Sprintf("%q:", r.Key()))
	case selection.DoesNotExist:
		return "NOT (" + contains(fmt.Sprintf("%q:", r.Key())) + ")"
	}
	return "1 = 0" // a comparison of numbers, which CheckSelector refuses
}

// CheckSelector returns an error for a selector that no list of agents can have.
func CheckSelector(g credentials.Grant) error {
	for _, r := range g.Requirements() {
		if r.Operator() == selection.GreaterThan || r.Operator() == selection.LessThan {
			return problem.Errorf(problem.Invalid, "use =, !=, in, notin or the label alone", "a list of agents does not compare numbers, as %q does", r.String())
		}
	}
	return nil
}

// literal escapes what LIKE takes for a pattern.
func literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}
