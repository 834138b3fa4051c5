package policy

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/preset"
)

// WithRule returns a policy's text with a rule before all others, in place of one of the same name,
// from which it takes the bounds that it does not have. It also returns that rule. The rest of the
// text stays as its owner wrote it, comments too. beside is the preset beside the text; where
// neither names one and the text has no rules, the default rules follow. The error is of a text
// that is not a policy, or not written line by line.
func WithRule(text []byte, beside string, rule Rule) ([]byte, Rule, error) {
	now, err := parse(text)
	if err != nil {
		return nil, Rule{}, err
	}
	if n := slices.IndexFunc(now.Rules, func(r Rule) bool { return r.Name == rule.Name }); n >= 0 {
		if now.Rules[n].Deny != rule.Deny {
			return nil, Rule{}, flaw(fmt.Sprintf("rules[%d]", n), "give the new rule another name", "the rule %q denies, or the new one does", rule.Name)
		}
		rule = rule.boundedBy(now.Rules[n])
	}
	if text, err = WithoutRule(text, rule.Name); err != nil {
		return nil, Rule{}, err
	}
	before, err := parse(text)
	if err != nil {
		return nil, Rule{}, err
	}
	rules := before.Rules
	if rules == nil && before.Preset == "" && beside == "" {
		rules = presets[preset.Deploy]
	}
	item, err := itemOf(rule)
	if err != nil {
		return nil, Rule{}, err
	}
	lines := lined(text)
	at := slices.IndexFunc(lines, isRules)
	switch {
	case at < 0 && before.Rules == nil:
		lines = append(append(lines, "rules:"), item...)
		if len(rules) > 0 {
			rest, err := decode.ToYAML(rules)
			if err != nil {
				return nil, Rule{}, err
			}
			lines = append(lines, lined(rest)...)
		}
	case at < 0:
		return nil, Rule{}, byHand(item)
	default:
		indent := ""
		if next := slices.IndexFunc(lines[at+1:], isItem); next >= 0 {
			indent = indentOf(lines[at+1+next])
		}
		lines[at] = noRules.ReplaceAllString(lines[at], "rules:$1")
		for n, line := range item {
			lines = slices.Insert(lines, at+1+n, indent+line)
		}
	}
	text, err = confirmed(lines, append([]Rule{rule}, rules...), func() error { return byHand(item) })
	return text, rule, err
}

// boundedBy returns the rule with the bounds that its owner has added to an earlier one. What
// bounds charts, a rule that names charts has by itself.
func (r Rule) boundedBy(was Rule) Rule {
	if r.Charts == nil {
		r.Charts, r.Releases = was.Charts, kept(r.Releases, was.Releases)
		r.Rights, r.Lookups, r.Annotations = kept(r.Rights, was.Rights), kept(r.Lookups, was.Lookups), kept(r.Annotations, was.Annotations)
	}
	r.Images, r.Hosts, r.Kinds = kept(r.Images, was.Images), kept(r.Hosts, was.Hosts), kept(r.Kinds, was.Kinds)
	r.Placement, r.Signers = kept(r.Placement, was.Placement), kept(r.Signers, was.Signers)
	r.ImageSigners = kept(r.ImageSigners, was.ImageSigners)
	if r.Approval == "" {
		r.Approval, r.ApproveUnseen = was.Approval, was.ApproveUnseen
	}
	r.Public, r.MaxReplicas, r.MaxResources = cmp.Or(r.Public, was.Public), cmp.Or(r.MaxReplicas, was.MaxReplicas), cmp.Or(r.MaxResources, was.MaxResources)
	r.Visitors, r.PublicPorts = cmp.Or(r.Visitors, was.Visitors), kept(r.PublicPorts, was.PublicPorts)
	r.Kubernetes, r.Record = cmp.Or(r.Kubernetes, was.Kubernetes), r.Record || was.Record
	return r
}

// kept returns a list, or the earlier one if it is absent.
func kept[T any](list, before []T) []T {
	if list == nil {
		return before
	}
	return list
}

// WithoutRule returns a policy's text without the rule of that name, if there is one.
func WithoutRule(text []byte, name string) ([]byte, error) {
	doc, err := parse(text)
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(doc.Rules, func(r Rule) bool { return r.Name == name })
	if n < 0 {
		return text, nil
	}
	wrong := func() error {
		return flaw(fmt.Sprintf("rules[%d]", n), "remove the rule from the list by hand", "the rule %q is not written line by line", name)
	}
	lines := lined(text)
	at := slices.IndexFunc(lines, isRules)
	if at < 0 {
		return nil, wrong()
	}
	from, to := itemLines(lines, at+1, n)
	if from < 0 {
		return nil, wrong()
	}
	rest := slices.Delete(slices.Clone(doc.Rules), n, n+1)
	if len(rest) == 0 {
		lines[at] = strings.Replace(lines[at], "rules:", "rules: []", 1)
	}
	return confirmed(slices.Delete(lines, from, to), rest, wrong)
}

// confirmed returns the lines if they are a policy with exactly these rules.
func confirmed(lines []string, rules []Rule, otherwise func() error) ([]byte, error) {
	text := []byte(strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n")
	doc, err := parse(text)
	if err != nil {
		return nil, err
	}
	if !slices.EqualFunc(doc.Rules, rules, func(a, b Rule) bool { return reflect.DeepEqual(a, b) }) {
		return nil, otherwise()
	}
	return text, nil
}

func byHand(item []string) error {
	return flaw("rules", "write one rule below the other, or add this to the list by hand:\n"+strings.Join(item, "\n"), "the rules are not written line by line")
}

// RuleText returns a rule as an item of a policy's list.
func RuleText(rule Rule) (string, error) {
	item, err := itemOf(rule)
	return strings.Join(item, "\n"), err
}

// itemOf returns the lines of a rule in a list, the name first.
func itemOf(rule Rule) ([]string, error) {
	text, err := decode.ToYAML(rule)
	if err != nil {
		return nil, err
	}
	lines := lined(text)
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "name: ") })
	name := lines[at]
	lines = slices.Insert(slices.Delete(lines, at, at+1), 0, name)
	for i, line := range lines {
		lines[i] = "  " + line
	}
	lines[0] = "- " + name
	return lines, nil
}

// itemLines returns the lines of a list's item; -1 if there are none. Comments above the next item
// are that item's.
func itemLines(lines []string, first, item int) (from, to int) {
	next := slices.IndexFunc(lines[first:], isItem)
	if next < 0 {
		return -1, -1
	}
	indent, n := indentOf(lines[first+next]), -1
	from, to = -1, len(lines)
	for i := first + next; i < len(lines); i++ {
		line := lines[i]
		switch blank := strings.TrimSpace(line); {
		case blank == "" || strings.HasPrefix(blank, "#"):
		case isItem(line) && indentOf(line) == indent:
			if n++; n == item {
				from = i
			} else if from >= 0 {
				return from, above(lines, i)
			}
		case len(indentOf(line)) <= len(indent): // the list has ended
			if from >= 0 {
				return from, above(lines, i)
			}
			return -1, -1
		}
	}
	return from, to
}

// above returns the first of the comments and blank lines before a line.
func above(lines []string, i int) int {
	for i > 0 {
		if blank := strings.TrimSpace(lines[i-1]); blank != "" && !strings.HasPrefix(blank, "#") {
			break
		}
		i--
	}
	return i
}

var (
	rulesLine = regexp.MustCompile(`^rules:\s*(\[\s*\])?\s*(#.*)?$`)
	noRules   = regexp.MustCompile(`^rules:\s*\[\s*\](.*)$`)
	itemLine  = regexp.MustCompile(`^\s*- `)
)

func isRules(line string) bool { return rulesLine.MatchString(line) }

func isItem(line string) bool { return itemLine.MatchString(line) }

func indentOf(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " "))] }

func lined(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
}
