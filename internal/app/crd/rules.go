package crd

import (
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// What struct tags cannot express, in CEL: runnerapi.SpecRules, and here the rules about a part of
// a spec in any place. The messages are those of AppSpec.Validate; a test sends the same specs to
// both.
var (
	envRule = rule(`[has(self.value), has(self.secret), has(self.configMap)].filter(x, x).size() <= 1`,
		"exactly one of value, secret and configMap may be set")
	envFromRule = rule(`has(self.secret) != has(self.configMap)`,
		"exactly one of secret and configMap must be set")
	probeRule = rule(`[has(self.http), has(self.tcp), has(self.exec)].filter(x, x).size() == 1`,
		"exactly one of http, tcp and exec must be set")
	portRules = []apiextensions.ValidationRule{
		rule(`self.size() <= 1 || self.all(p, has(p.name))`, "every port needs a name when there is more than one"),
		rule(`self.all(p, !has(p.name) || self.exists_one(o, has(o.name) && o.name == p.name))`, "is the name of another port"),
		rule(`self.all(p, self.exists_one(o, o.port == p.port && o.protocol == p.protocol))`, "is there twice"),
		rule(`self.all(p, self.exists_one(o, (has(o.service) ? o.service : o.port) == (has(p.service) ? p.service : p.port) && o.protocol == p.protocol))`,
			"is there twice"),
	}
	typeRule   = rule(`self.type == oldSelf.type`, runnerapi.TypeFixed)
	claimsRule = rule(within(`self`, `oldSelf`)+` && `+within(`oldSelf`, `self`), runnerapi.ClaimsFixed)
)

// nameRules hold the App's name against its spec.
var nameRules = apiextensions.ValidationRules{
	rule(`!(self.spec.type in ['StatefulSet', 'CronJob']) || self.metadata.name.size() <= 52`,
		"the name of a StatefulSet or CronJob has at most 52 letters"),
	rule(`!has(self.spec.jobs) || self.spec.jobs.all(j, self.metadata.name.size() + 1 + j.name.size() <= 63)`,
		"the names of the Pipeline and of the job together have at most 62 letters"),
	rule(`!has(self.spec.initContainers) || self.spec.initContainers.all(c, c.name != self.metadata.name)`,
		"an init container may not have the App's name: its own container has it"),
}

// within returns the rule that each claim of a is one of b.
func within(a, b string) string {
	return strings.NewReplacer("A", a, "B", b).Replace(
		`(!has(A.volumes) || A.volumes.all(v, !has(v.claim) || has(B.volumes) && B.volumes.exists(o, o.name == v.name && has(o.claim) && o.claim == v.claim)))`)
}

func lessRule(name string) apiextensions.ValidationRule {
	return rule(strings.ReplaceAll(`!has(self.requests) || !has(self.requests.X) || !has(self.limits) || !has(self.limits.X) || `+
		`quantity(self.requests.X).compareTo(quantity(self.limits.X)) <= 0`, "X", name), "the request is more than the limit")
}

func rule(expression, message string) apiextensions.ValidationRule {
	return apiextensions.ValidationRule{Rule: expression, Message: message}
}

// addRules adds the rules to their places in the spec's schema.
func addRules(spec *apiextensions.JSONSchemaProps) {
	for _, r := range runnerapi.SpecRules() {
		spec.XValidations = append(spec.XValidations, rule(r.CEL, r.Message))
	}
	spec.XValidations = append(spec.XValidations, typeRule, claimsRule)
	amounts := []apiextensions.ValidationRule{lessRule("cpu"), lessRule("memory"), rule(runnerapi.DevicesCEL, runnerapi.DevicesMessage)}
	forItems(spec, "env", envRule)
	forItems(spec, "envFrom", envFromRule)
	for _, probe := range []string{"startup", "readiness", "liveness"} {
		at(spec.Properties["probes"], probe, probeRule)
	}
	at(*spec, "ports", portRules...)
	at(*spec, "resources", amounts...)
	counts(*spec)
	init := spec.Properties["initContainers"].Items.Schema
	forItems(init, "env", envRule)
	at(*init, "resources", amounts...)
	counts(*init)
	keyed(init, "env", "name")
	jobs := spec.Properties["jobs"].Items.Schema
	forItems(jobs, "env", envRule)
	forItems(jobs, "envFrom", envFromRule)
	at(*jobs, "resources", amounts...)
	counts(*jobs)
	keyed(jobs, "env", "name")
	for list, key := range map[string]string{"env": "name", "jobs": "name", "volumes": "name", "initContainers": "name", "files": "path"} {
		keyed(spec, list, key)
	}
	bound(spec.Properties["imagePullSecrets"].Items.Schema, 253, `^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	bound(spec.Properties["spread"].Properties["over"].Items.Schema, 317, `^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	bound(spec.Properties["nodeSelector"].AdditionalProperties.Schema, 63, "")
	bound(spec.Properties["podLabels"].AdditionalProperties.Schema, 63, "")
	anyFields(spec.Properties["patches"].Items.Schema, "patch")
}

// anyFields makes the API server keep all fields of an object: the agent checks them.
func anyFields(parent *apiextensions.JSONSchemaProps, name string) {
	p := parent.Properties[name]
	p.AdditionalProperties, p.XPreserveUnknownFields = nil, new(true)
	parent.Properties[name] = p
}

// keyed makes the API server refuse two items with the same key.
func keyed(parent *apiextensions.JSONSchemaProps, name, key string) {
	p := parent.Properties[name]
	p.XListType, p.XListMapKeys = new("map"), []string{key}
	parent.Properties[name] = p
}

// bound applies to the items of a list, or the values of a map, what tags express only for fields.
func bound(s *apiextensions.JSONSchemaProps, maxLength int64, pattern string) {
	s.MaxLength, s.Pattern = &maxLength, pattern
}

// counts bounds the numbers of devices among a container's resources.
func counts(parent apiextensions.JSONSchemaProps) {
	count := parent.Properties["resources"].Properties["devices"].AdditionalProperties.Schema
	count.Minimum, count.Maximum = new(1.0), new(float64(runnerapi.MaxDevices))
}

func at(parent apiextensions.JSONSchemaProps, name string, rules ...apiextensions.ValidationRule) {
	p := parent.Properties[name]
	p.XValidations = append(p.XValidations, rules...)
	parent.Properties[name] = p
}

func forItems(spec *apiextensions.JSONSchemaProps, name string, r apiextensions.ValidationRule) {
	items := spec.Properties[name].Items.Schema
	items.XValidations = append(items.XValidations, r)
}
