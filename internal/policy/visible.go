package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Visible implements backend.Policy. A namespace is hidden from a call over all namespaces if the
// call would be refused for that namespace, or if a rule denies there what shows the same.
func (p *Policy) Visible(runner, command, namespace string) bool {
	all := Commands()
	i := runnerapi.Intent{Command: command, Access: all[command], Runner: runner, Namespace: namespace}
	if p.Decide(i) != nil {
		return false
	}
	_, within, _ := runnerapi.NamespaceCheckOf(command)
	p.mu.Lock()
	doc := p.doc
	p.mu.Unlock()
	for _, name := range within {
		i.Command, i.Access = name, all[name]
		if doc.denies(i) {
			return false
		}
	}
	return true
}

// denies reports whether the deciding rule is one that denies.
func (d Document) denies(i runnerapi.Intent) bool {
	for _, rule := range d.Rules {
		if rule.about(i) {
			return rule.Deny
		}
	}
	return false
}

// hidden returns the namespaces that a request to the Kubernetes API over all namespaces must not
// reach: rules above the one that allows it refuse it there. If such a rule has a pattern, these
// namespaces cannot be listed, and the second value is the refusal.
func (d Document) hidden(i runnerapi.Intent, source string) (names []string, refused error) {
	if i.Kubernetes == nil || i.Namespace != "" {
		return nil, nil
	}
	asked := *i.Kubernetes
	asked.Grant = runnerapi.KubernetesGrant{}
	i.Kubernetes = &asked
	if asked.Selected != "" { // by a field selector
		i.Namespace = asked.Selected
		_, err := d.explain(i, source)
		return nil, err
	}
	for at, rule := range d.Rules {
		if rule.about(i) { // it decides
			break
		}
		if rule.Namespaces == nil || !rule.Deny && rule.Kubernetes != nil || !matches(rule.Runners, i.Runner) || !rule.names(i) {
			continue
		}
		for _, pattern := range rule.Namespaces {
			if strings.ContainsAny(pattern, `*?[`) {
				r := ruling{Rule: rule, field: fmt.Sprintf("rules[%d]", at), source: source}
				return nil, r.refuse("", "namespaces", "is about namespaces by a pattern (%s), so nothing is allowed over all namespaces: ask about one", pattern)
			}
			within := i
			within.Namespace = pattern
			if _, err := d.explain(within, source); err != nil && !slices.Contains(names, pattern) {
				names = append(names, pattern)
			}
		}
	}
	return names, nil
}

// still refuses a request that continues over all namespaces if another one is hidden by now.
func (d Document) still(i runnerapi.Intent, source string) error {
	if i.Kubernetes == nil || i.Kubernetes.Grant.As.User == "" {
		return nil
	}
	was := i.Kubernetes.Grant
	names, refused := d.hidden(i, source)
	if refused != nil && was.AllNamespacesDenied == nil || !slices.Equal(names, was.Hidden) {
		return runnerapi.PolicyDenied("begin again", "the customer's policy hides other namespaces than when this began")
	}
	return nil
}
