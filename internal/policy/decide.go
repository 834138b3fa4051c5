package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// explain returns the rule that allows what is intended, or refuses it.
func (d Document) explain(i runnerapi.Intent, source string) (Rule, error) {
	rules := d.Rules
	if rules == nil {
		rules = defaultRules
	}
	var refused error
	for at, rule := range rules {
		if !rule.about(i) {
			continue
		}
		r := ruling{Rule: rule, field: fmt.Sprintf("rules[%d]", at), source: source}
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
	return Rule{}, runnerapi.PolicyDenied("only the owner of the cluster can allow it, by a rule in "+source,
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

// about says whether the rule is to decide.
func (r Rule) about(i runnerapi.Intent) bool {
	namespace := matches(r.Namespaces, i.Namespace)
	if i.Namespace == "" {
		namespace = r.Namespaces == nil || slices.Contains(r.Namespaces, anything)
		// Which resources there are, all may know that may do anything with some.
		namespace = namespace || i.Discovers() && !r.Deny
	}
	return namespace && matches(r.Runners, i.Runner) && r.names(i)
}

// names says whether the rule's commands have this one among them.
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

// matches says whether one of the patterns is of the name; no list is of all.
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
}

// refuse names the rule, which part of it, and the field of the command at fault.
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

// bounds looks at what the command brings.
func (r ruling) bounds(i runnerapi.Intent) error {
	if i.App != nil {
		if err := r.app(*i.App); err != nil {
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
	if i.Command == runnerapi.KubernetesCall {
		if err := r.kubernetes(i); err != nil {
			return err
		}
	}
	for _, kind := range i.Kinds {
		if !slices.ContainsFunc(r.Kinds, func(k string) bool { return k == anything || strings.EqualFold(k, kind) }) {
			return r.refuse("kind", "kinds", "allows manifests of %s, not of %s", orNone(r.Kinds, "no kind"), kind)
		}
	}
	for _, o := range i.Objects {
		if err := r.object(o); err != nil {
			return err
		}
	}
	return nil
}

// objectField is the field of a command that leads to objects which it does not name.
const objectField = "chart"

// inObject says of a refusal which object it is about.
func inObject(err error, at string) error {
	p := &problem.Error{}
	if !errors.As(err, &p) {
		return err
	}
	if within, ok := strings.CutPrefix(p.Field, objectField+"."); ok {
		at += ": " + within
	}
	return p.WithField(objectField).WithLocation(at)
}

// lookup looks at what a template would read. What it reads the Runner can see, in what the
// chart becomes.
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
	return inObject(r.refuse(objectField, "lookups", "lets templates look up %s, not %s", allowed, o.Kind), o.Location)
}

// object looks at an object that somebody else than the agent has written.
func (r ruling) object(o runnerapi.ObjectIntent) error {
	if o.LookedUp {
		return r.lookup(o)
	}
	if !slices.ContainsFunc(r.Kinds, func(k string) bool { return k == anything || strings.EqualFold(k, o.Kind) }) {
		return inObject(r.refuse(objectField, "kinds", "allows objects of %s, not of %s", orNone(r.Kinds, "no kind"), o.Kind), o.Location)
	}
	if err := r.replicas(objectField, o.Replicas); err != nil {
		return inObject(err, o.Location)
	}
	for _, c := range o.Containers {
		at := o.Location + ": container " + c.Name
		if err := r.image(objectField, c.Image); err != nil {
			return inObject(err, at)
		}
		if err := r.resources(objectField+".limits", c.Limits); err != nil {
			return inObject(err, at)
		}
	}
	return nil
}

func (r ruling) app(s runnerapi.AppSpec) error {
	if err := r.image("image", s.Image); err != nil {
		return err
	}
	if err := r.replicas("replicas", s.Replicas); err != nil {
		return err
	}
	if s.Autoscaling != nil {
		if err := r.replicas("autoscaling.max", &s.Autoscaling.Max); err != nil {
			return err
		}
	}
	if s.Job != nil {
		if err := r.replicas("job.parallelism", &s.Job.Parallelism); err != nil {
			return err
		}
	}
	if s.Type != runnerapi.TypePipeline { // whose own are for jobs that have none
		if err := r.resources("resources.limits", s.Resources.Limits); err != nil {
			return err
		}
	}
	if err := r.jobs(s); err != nil {
		return err
	}
	for n, c := range s.InitContainers {
		at := fmt.Sprintf("initContainers[%d]", n)
		if c.Image != "" { // else it is the App's
			if err := r.image(at+".image", c.Image); err != nil {
				return err
			}
		}
		if err := r.resources(at+".resources.limits", c.Resources.Limits); err != nil {
			return err
		}
	}
	return nil
}

// jobs looks at those of a Pipeline, each with what it has of the Pipeline.
func (r ruling) jobs(s runnerapi.AppSpec) error {
	for n, j := range s.Jobs {
		at := fmt.Sprintf("jobs[%d]", n)
		if j.Image != "" { // else it is the App's
			if err := r.image(at+".image", j.Image); err != nil {
				return err
			}
		}
		if err := r.resources(at+".resources.limits", s.JobSpec(j).Resources.Limits); err != nil {
			return err
		}
	}
	return nil
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
	if err != nil || limit.Cmp(resource.MustParse(most)) > 0 { // Parse has tried it
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
		return r.refuse(field, "images", "looks at where images come from, and %.200q is no image reference", image)
	}
	for _, allowed := range r.Images {
		if repository == allowed || strings.HasPrefix(repository, allowed+"/") {
			return nil
		}
	}
	return r.refuse(field, "images", "allows images from %s, not from %s", orNone(r.Images, "nowhere"), repository)
}

func orNone(words []string, none string) string {
	if len(words) == 0 {
		return none
	}
	return strings.Join(words, ", ")
}
