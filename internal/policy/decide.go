package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/preset"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// explain returns the rule that allows the intent, or refuses it.
func (d Document) explain(i runnerapi.Intent, source string) (Rule, error) {
	rules := d.Rules
	if rules == nil {
		rules = presets[preset.Deploy]
	}
	var refused error
	for at, rule := range rules {
		if !rule.about(i) {
			continue
		}
		r := ruling{Rule: rule, field: fmt.Sprintf("rules[%d]", at), source: source, intent: i, images: d.images}
		err := r.allow(i)
		if err == nil {
			return rule, nil
		}
		if refused == nil {
			refused = err
		}
		if rule.Deny || !i.Discovers() { // the first rule wins
			return Rule{}, refused
		}
	}
	if refused != nil {
		return Rule{}, refused
	}
	fix := "only the owner of the cluster can allow it, by a rule in " + source
	if command := allowing(i, source); command != "" {
		fix += ", which this makes: " + command
	}
	return Rule{}, runnerapi.PolicyDenied(fix,
		"no rule of the customer's policy allows Runner %s to do %s%s", i.Runner, i.Command, where(i))
}

func (r ruling) allow(i runnerapi.Intent) error {
	if r.Deny {
		return r.refuse("", "deny", "does not allow Runner %s to do %s%s", i.Runner, i.Command, where(i))
	}
	return r.bounds(i)
}

func where(i runnerapi.Intent) string {
	if i.Namespace == "" {
		return ", which is not about one namespace alone"
	}
	return " in namespace " + i.Namespace
}

// about reports whether the rule decides about the intent.
func (r Rule) about(i runnerapi.Intent) bool {
	namespace := matches(r.Namespaces, i.Namespace)
	if i.Namespace == "" {
		namespace = r.everywhere()
		// Every Runner that may do anything with some resources may know which resources exist.
		namespace = namespace || i.Discovers() && !r.Deny
	}
	return namespace && matches(r.Runners, i.Runner) && r.names(i) && r.release(i)
}

// names reports whether the rule's commands include this one.
func (r Rule) names(i runnerapi.Intent) bool {
	if r.Commands == nil {
		return r.Deny || i.Access != runnerapi.Named
	}
	return slices.ContainsFunc(r.Commands, func(c string) bool {
		switch c {
		case anything:
			return r.Deny || i.Access != runnerapi.Named
		case reads:
			return i.Access == runnerapi.Reads
		case writes:
			return i.Access == runnerapi.Writes || r.Deny && i.Access == runnerapi.Named
		case i.Command:
			return true
		}
		return (r.Deny || i.Access != runnerapi.Named) && matchesOne(c, i.Command)
	})
}

// matches reports whether one of the patterns matches the name; an empty list matches all.
func matches(patterns []string, name string) bool {
	return patterns == nil || slices.ContainsFunc(patterns, func(p string) bool { return matchesOne(p, name) })
}

func matchesOne(pattern, name string) bool {
	ok, err := path.Match(pattern, name) // names have no slash
	return ok && err == nil
}

// ruling is a rule that decides.
type ruling struct {
	Rule
	field, source string
	intent        runnerapi.Intent
	images        VerifyImage
}

// refuse names the rule, the part of it, and the field of the command at fault.
func (r ruling) refuse(field, part, format string, args ...any) error {
	fix := "stay within it, or have the owner of the cluster change " + r.field + "." + part + " in " + r.source
	if part == "deny" {
		fix = "only the owner of the cluster can allow it: " + r.field + " in " + r.source
	}
	if r.source == "" {
		fix = "stay within it"
	}
	e := runnerapi.PolicyDenied(fix, "rule %q of the customer's policy "+format, append([]any{r.Name}, args...)...)
	return e.WithField(field)
}

// bounds checks what the command brings.
func (r ruling) bounds(i runnerapi.Intent) error {
	if i.App != nil {
		if err := r.brought(input.App(*i.App)); err != nil {
			return err
		}
	}
	for _, o := range i.Patches {
		if err := r.brought(o); err != nil {
			return err
		}
	}
	if i.Build != nil { // what it pushes is what Apps run next
		if err := r.image("image", i.Build.Image); err != nil {
			return err
		}
		if err := r.resources("resources.limits", i.Build.Resources.Limits); err != nil {
			return err
		}
	}
	if s := i.Scale; s != nil {
		for field, n := range map[string]*int32{"replicas": s.Replicas, "min": s.Min, "max": s.Max} {
			if err := r.replicas(field, n); err != nil {
				return err
			}
		}
	}
	if r.Record && i.Command == runnerapi.ExecCall && !i.Recorded {
		return r.refuse("", "record", "has each session recorded, and this one is not: begin it again")
	}
	if i.Command == runnerapi.KubernetesCall {
		if err := r.kubernetes(i); err != nil {
			return err
		}
	}
	if err := r.chart(i); err != nil {
		return err
	}
	for _, o := range i.Objects {
		if err := r.object(o); err != nil {
			return err
		}
	}
	return nil
}

// objectField is the field of a command for objects that it does not name itself.
const objectField = "chart"

// inObject adds the object to a refusal, if the caller does not know it.
func inObject(err error, o runnerapi.ObjectIntent) error {
	p := &problem.Error{}
	if o.Location == "" || !errors.As(err, &p) {
		return err
	}
	at := o.Location
	if p.Field != "kind" {
		at += ": " + p.Field
	}
	return p.WithField(objectField).WithLocation(at)
}

// lookup checks what a template would read. The Runner can see what it reads in the rendered chart.
func (r ruling) lookup(o runnerapi.ObjectIntent) error {
	if r.Lookups == nil && !strings.EqualFold(o.Kind, "Secret") {
		return nil
	}
	if slices.ContainsFunc(r.Lookups, func(k string) bool { return k == anything || strings.EqualFold(k, o.Kind) }) {
		return nil
	}
	allowed := orNone(r.Lookups, "no kind")
	if r.Lookups == nil {
		allowed = "all kinds but Secret"
	}
	return inObject(r.refuse("kind", "lookups", "lets templates look up %s, not %s", allowed, o.Kind), o)
}

// object checks an object that was not generated by the agent.
func (r ruling) object(o runnerapi.ObjectIntent) error {
	if o.LookedUp {
		return r.lookup(o)
	}
	if !r.kind(o) {
		return inObject(r.orAllowChart(r.refuse("kind", "kinds", "allows objects of %s, not of %s", orNone(r.Kinds, "no kind"), r.bringing(o))), o)
	}
	if o.Rights != "" && r.Rights != nil && !slices.Contains(r.Rights, o.Rights) {
		return inObject(r.orAllowChart(r.refuse("rules", "rights", "allows the rights that the cluster's owner saw, and %s has others (%s)", o.Kind+"/"+o.Name, o.Rights)), o)
	}
	return inObject(r.brought(o), o)
}

// brought checks what an App or an object brings.
func (r ruling) brought(o runnerapi.ObjectIntent) error {
	for _, c := range o.Containers {
		if err := r.container(c, o.PullSecrets); err != nil {
			return err
		}
	}
	for _, n := range o.Counts {
		if err := r.replicas(n.Field, &n.Pods); err != nil {
			return err
		}
	}
	for _, a := range o.Annotations {
		if err := r.annotation(a); err != nil {
			return err
		}
	}
	for _, p := range o.Placement {
		if err := r.placement(p); err != nil {
			return err
		}
	}
	if err := r.visitors(o); err != nil {
		return err
	}
	for _, h := range o.Hosts {
		if err := r.host(h); err != nil {
			return err
		}
	}
	for _, p := range o.Ports {
		if err := r.port(p); err != nil {
			return err
		}
	}
	for _, way := range o.Outside {
		if err := r.outside(way); err != nil {
			return err
		}
	}
	return r.public(o)
}

func (r ruling) container(c runnerapi.ContainerIntent, pullSecrets []string) error {
	field := func(name string) string { return strings.TrimPrefix(c.Field+"."+name, ".") }
	if c.Image != "" || !c.Partial {
		if err := r.image(field("image"), c.Image); err != nil {
			return err
		}
		if err := r.signed(field("image"), c.Image, pullSecrets); err != nil {
			return err
		}
	}
	if c.Partial && c.Limits == (runnerapi.ResourceAmounts{}) {
		return nil
	}
	return r.resources(field("resources.limits"), c.Limits)
}

func (r ruling) replicas(field string, n *int32) error {
	if r.MaxReplicas == nil || n == nil || *n <= *r.MaxReplicas {
		return nil
	}
	return r.refuse(field, "maxReplicas", "allows at most %d pods of an App, not %d", *r.MaxReplicas, *n)
}

func (r ruling) resources(field string, limits runnerapi.ResourceAmounts) error {
	if r.MaxResources == nil {
		return nil
	}
	if err := r.amount(field+".cpu", "maxResources.cpu", r.MaxResources.CPU, limits.CPU); err != nil {
		return err
	}
	return r.amount(field+".memory", "maxResources.memory", r.MaxResources.Memory, limits.Memory)
}

func (r ruling) amount(field, part, most, asked string) error {
	if most == "" {
		return nil
	}
	if asked == "" {
		return r.refuse(field, part, "wants a limit of each container, at most %s", most)
	}
	limit, err := resource.ParseQuantity(asked)
	if err != nil || limit.Cmp(resource.MustParse(most)) > 0 { // Parse has validated it
		return r.refuse(field, part, "allows a limit of at most %s, not %s", most, asked)
	}
	return nil
}

func (r ruling) image(field, image string) error {
	if r.Images == nil {
		return nil
	}
	repository, err := repositoryOf(image)
	if err != nil {
		return r.refuse(field, "images", "looks at where images come from, and %.200q is not an image reference", image)
	}
	if among(r.Images, repository) {
		return nil
	}
	return r.refuse(field, "images", "allows images from %s, not from %s", orNone(r.Images, "nowhere"), repository)
}

func orNone(words []string, none string) string {
	if len(words) == 0 {
		return none
	}
	return strings.Join(words, ", ")
}
