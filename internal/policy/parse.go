package policy

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/preset"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MaxSize bounds a policy's text, in bytes.
const MaxSize = 64 << 10

// The keys of the ConfigMap. The switches are keys of their own, so that one
// command without an editor sets them.
const (
	keyDocument = "policy.yaml"
	keyPaused   = "paused"
	keyReadOnly = "readOnly"
	keyPublic   = "public"
	keyPreset   = "preset"
)

const fixDocument = "docs/reference/policy.md lists the fields; `pipeops-agent policy check --file FILE` tries a policy before it is set"

// FromConfigMap reads the data of the ConfigMap; nil, if there is none, is the default policy.
func FromConfigMap(data map[string]string) (Document, error) {
	public := publicKey(data)
	doc, err := fromConfigMap(data)
	if err != nil {
		return Document{Public: public}, err
	}
	if public != nil && (doc.Public == nil || *doc.Public) {
		doc.Public = public
	}
	return doc, nil
}

func fromConfigMap(data map[string]string) (Document, error) {
	doc, err := parse([]byte(data[keyDocument]))
	if err != nil {
		return Document{}, err
	}
	if named := strings.TrimSpace(data[keyPreset]); named != "" && doc.Preset != "" && named != doc.Preset {
		return Document{}, flaw(keyPreset, "name the preset in one of both", "it is %q, and %s has %q", named, keyDocument, doc.Preset)
	} else if named != "" {
		doc.Preset = named
		if wrong := checkPreset(named); wrong != "" {
			return Document{}, flaw(keyPreset, fixDocument, "%s", wrong)
		}
	}
	var public bool
	for _, key := range slices.Sorted(maps.Keys(data)) {
		to := &doc.Paused
		switch key {
		case keyDocument, keyPreset:
			continue
		case keyReadOnly:
			to = &doc.ReadOnly
		case keyPaused:
		case keyPublic: // publicKey has read it
			to = &public
		default:
			return Document{}, flaw(key, "use the keys policy.yaml, preset, paused, readOnly and public", "there is no such key")
		}
		on, err := strconv.ParseBool(strings.TrimSpace(data[key]))
		if err != nil {
			return Document{}, flaw(key, `set it to "true" or "false"`, "is neither true nor false")
		}
		*to = *to || on
	}
	return doc.resolved(), nil
}

// resolved returns the policy with the rules of its preset.
func (d Document) resolved() Document {
	if d.Preset != "" {
		d.Rules = slices.Concat(d.Rules, presets[d.Preset])
	}
	return d
}

// checkPreset returns what is wrong with a preset's name; empty if nothing is.
func checkPreset(name string) string {
	if presets[name] == nil {
		return fmt.Sprintf("%.40q is none of %s", name, strings.Join(preset.Names(), ", "))
	}
	return ""
}

// Parse parses a policy. Its error lists everything that is wrong. An empty text is the default
// policy. The rules of a preset follow the others.
func Parse(text []byte) (Document, error) {
	doc, err := parse(text)
	return doc.resolved(), err
}

// parse parses a policy without the rules of its preset.
func parse(text []byte) (Document, error) {
	if len(text) > MaxSize {
		return Document{}, flaw("", "use patterns instead of long lists", "the policy has more than %d bytes", MaxSize)
	}
	var doc Document
	var all any
	err := decode.LimitsFor(MaxSize).YAML(text, &doc)
	if err == nil {
		err = decode.LimitsFor(MaxSize).LooseYAML(text, &all)
	}
	if e := (&decode.Error{}); errors.As(err, &e) && e.Field != "" {
		return Document{}, flaw(e.Field, fixDocument, "%s", e.Message)
	}
	if err != nil {
		return Document{}, flaw("", fixDocument, "%v", err)
	}
	c := &checking{}
	c.nulls(all)
	c.document(doc)
	if len(c.wrong) > 0 {
		e := flaw(c.wrong[0].Field, fixDocument, "%s", c.wrong[0].Message)
		if len(c.wrong) > 1 {
			e.Fields = c.wrong
		}
		return Document{}, e
	}
	return doc, nil
}

func flaw(field, fix, format string, args ...any) *problem.Error {
	return problem.Errorf(problem.Invalid, fix, format, args...).WithField(field)
}

// checking gathers what is wrong.
type checking struct{ wrong []problem.FieldError }

func (c *checking) add(field, format string, args ...any) {
	c.wrong = append(c.wrong, problem.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// nulls refuses each null but that of an empty policy.
func (c *checking) nulls(all any) {
	if all == nil {
		return
	}
	for _, field := range nulls("", all) {
		c.add(field, "has no value: give it one ([] for an empty list), or remove the field")
	}
}

// maxName bounds the name of a rule.
const maxName = 63

var ruleName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9 ._-]{0,61}[A-Za-z0-9])?$`)

func (c *checking) document(d Document) {
	c.oneOf("audit", d.Audit, required)
	if d.Preset != "" {
		if wrong := checkPreset(d.Preset); wrong != "" {
			c.add("preset", "%s", wrong)
		}
	}
	c.trust(d.Trust)
	c.hosts(egress.PolicyKey, d.FetchHosts)
	names := map[string]bool{}
	for i, r := range d.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		switch {
		case !ruleName.MatchString(r.Name):
			c.add(at+".name", "every rule needs a name: letters, digits, spaces, '.', '_' and '-', at most 63")
		case names[r.Name]:
			c.add(at+".name", "%q is the name of another rule", r.Name)
		}
		names[r.Name] = true
		c.rule(at, r)
	}
}

func (c *checking) rule(at string, r Rule) {
	c.patterns(at+".runners", r.Runners)
	c.patterns(at+".namespaces", r.Namespaces)
	c.patterns(at+".commands", r.Commands)
	for i, name := range r.Commands {
		if !r.knows(name) {
			c.add(fmt.Sprintf("%s.commands[%d]", at, i), "%.100q is not a command: pipeops-agent policy commands lists them", name)
		}
	}
	c.sources(at+".images", r.Images)
	c.names(at, r)
	c.charts(at, r)
	if r.MaxReplicas != nil && *r.MaxReplicas < 0 {
		c.add(at+".maxReplicas", "must not be less than 0")
	}
	if m := r.MaxResources; m != nil {
		c.quantity(at+".maxResources.cpu", m.CPU)
		c.quantity(at+".maxResources.memory", m.Memory)
	}
	if len(r.Kinds) > 0 && !slices.ContainsFunc(bringKinds, func(c string) bool { return slices.Contains(r.Commands, c) }) {
		c.add(at+".kinds", "bounds %s, of which the rule's commands have to name one", strings.Join(bringKinds, ", "))
	}
	if r.Lookups != nil && !slices.ContainsFunc(lookupCommands, func(c string) bool { return slices.Contains(r.Commands, c) }) {
		c.add(at+".lookups", "bounds %s, which the rule's commands have to name", strings.Join(lookupCommands, ", "))
	}
	if r.Record && !slices.ContainsFunc(sessionCommands, func(c string) bool { return slices.Contains(r.Commands, c) }) {
		c.add(at+".record", "is about %s, of which the rule's commands have to name one", strings.Join(sessionCommands, " and "))
	}
	c.signers(at+".signers", r)
	c.imageSigners(at+".imageSigners", r.ImageSigners)
	c.oneOf(at+".visitors", r.Visitors, required, signIn)
	c.publicPorts(at+".publicPorts", r.PublicPorts)
	c.approval(at+".approval", r.Approval)
	if r.ApproveUnseen && r.Approval == "" {
		c.add(at+".approveUnseen", "is about commands that need an approval: set approval")
	}
	c.kubernetes(at, r)
	if r.Deny && r.bounded() {
		c.add(at+".deny", "a rule that denies takes no images, charts, hosts, public, visitors, publicPorts, annotations, placement, maxReplicas, maxResources, kinds, rights, lookups, signers, imageSigners, record and approval: it has nothing to bound")
	}
}

// bounded reports whether the rule bounds what a command brings.
func (r Rule) bounded() bool {
	return r.Images != nil || r.Charts != nil || r.Hosts != nil || r.Public != nil || r.Visitors != "" || r.PublicPorts != nil || r.Annotations != nil || r.Placement != nil || r.MaxReplicas != nil || r.MaxResources != nil ||
		r.Kinds != nil || r.Rights != nil || r.Lookups != nil || r.Signers != nil || r.ImageSigners != nil || r.Record || r.Approval != ""
}

// oneOf checks a field that is absent, or has one of these values.
func (c *checking) oneOf(field, value string, values ...string) {
	if value != "" && !slices.Contains(values, value) {
		c.add(field, "%.40q is not %q, which is all that it can be", value, strings.Join(values, " or "))
	}
}

// patterns checks patterns: they have no slash, and an escape would hide what they stand for.
func (c *checking) patterns(field string, patterns []string) {
	for i, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" || strings.ContainsAny(p, "/\\ ") {
			c.add(fmt.Sprintf("%s[%d]", field, i), "%.100q is neither a name nor a pattern such as ci-*", p)
		}
	}
}

func (c *checking) quantity(field, q string) {
	if q == "" {
		return
	}
	if parsed, err := resource.ParseQuantity(q); err != nil || parsed.Sign() < 0 {
		c.add(field, "%.40q is not a Kubernetes quantity such as 500m or 2Gi", q)
	}
}

// knows reports whether an entry of the rule's commands stands for anything at all.
func (r Rule) knows(name string) bool {
	if name == anything || name == reads || name == writes {
		return true
	}
	for command, access := range Commands() {
		if name == command || (r.Deny || access != runnerapi.Named) && matchesOne(name, command) {
			return true
		}
	}
	return false
}
