package runnerapi

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// FieldError is one field at fault.
type FieldError = problem.FieldError

// Names that Kubernetes takes. An App's is also that of its Service, which
// has to begin with a letter (RFC 1035).
const (
	appNamePattern       = `^[a-z]([a-z0-9-]*[a-z0-9])?$`
	labelPattern         = `^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	objectNamePattern    = `^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`
	keyPattern           = `^[A-Za-z0-9._-]+$`
	maxLabel, maxSubname = 63, 253
)

var (
	appName    = regexp.MustCompile(appNamePattern)
	label      = regexp.MustCompile(labelPattern)
	objectName = regexp.MustCompile(objectNamePattern)
	dataKey    = regexp.MustCompile(keyPattern)
)

// ValidAppName reports whether an App may have this name.
func ValidAppName(name string) bool { return len(name) <= maxLabel && appName.MatchString(name) }

// maxSetName is the longest name of a StatefulSet or CronJob: Kubernetes puts a
// suffix behind it.
const maxSetName = 52

// ValidateName reports why an App of this spec may not have this name.
func (s AppSpec) ValidateName(name string) []FieldError {
	v := &validation{}
	if !ValidAppName(name) {
		v.add("path.name", "%q cannot be the name of an App: lower case letters, digits and '-', a letter first, at most 63 in all", printable.Clip(name))
	}
	if len(name) > maxSetName && s.is(TypeStatefulSet, TypeCronJob) {
		v.add("path.name", "the name of a StatefulSet or CronJob has at most 52 letters")
	}
	for i, j := range s.Jobs {
		if len(name)+1+len(j.Name) > maxLabel {
			v.add(fmt.Sprintf("jobs[%d].name", i), "the names of the Pipeline and of the job together have at most %d letters", maxLabel-1)
		}
	}
	for i, c := range s.InitContainers {
		if c.Name == name {
			v.add(fmt.Sprintf("initContainers[%d].name", i), "an init container may not have the App's name: its own container has it")
		}
	}
	return v.errs
}

// ValidateChange returns errors for the fields of a spec that cannot replace those of the one
// before.
func (s AppSpec) ValidateChange(before AppSpec) []FieldError {
	v := &validation{}
	if was := cmp.Or(before.Type, TypeDeployment); !s.is(was) {
		v.add("type", "%s", TypeFixed)
	}
	if !maps.Equal(s.claims(), before.claims()) {
		v.add("volumes", "%s", ClaimsFixed)
	}
	return v.errs
}

// What cannot change of an App, and what to do instead.
const (
	TypeFixed   = "the type of an App cannot change: delete the App and deploy it again with the new type"
	ClaimsFixed = "the claims of a StatefulSet cannot change: delete the App, whose volumes are kept, and deploy it again, or add a volume by existingClaim"
)

// claims returns the claims by name.
func (s AppSpec) claims() map[string]VolumeClaim {
	out := map[string]VolumeClaim{}
	for _, volume := range s.Volumes {
		if c := volume.Claim; c != nil {
			claim := *c
			claim.AccessMode = cmp.Or(claim.AccessMode, "ReadWriteOnce")
			out[volume.Name] = claim
		}
	}
	return out
}

// Validate returns what is wrong with a spec beyond what its struct tags can express. The API
// refuses such a spec. For an App that was written with kubectl, the reconciler reports the same.
func (s AppSpec) Validate() []FieldError {
	v := &validation{}
	v.ports(s.Ports)
	v.env("env", s.Env)
	v.envFrom("envFrom", s.EnvFrom)
	v.resources("resources", s.Resources)
	v.rightSizing(s.RightSizing)
	v.probe("probes.startup", s.Probes.Startup)
	v.probe("probes.readiness", s.Probes.Readiness)
	v.probe("probes.liveness", s.Probes.Liveness)
	for i, name := range s.ImagePullSecrets {
		v.objectName(fmt.Sprintf("imagePullSecrets[%d]", i), name)
	}
	v.named(s)
	v.errs = append(v.errs, CheckPatches(s.Patches)...)
	for _, rule := range SpecRules() {
		if !rule.Holds(s) {
			field, message := rule.Entry(s)
			v.add(field, "%s", message)
		}
	}
	return v.errs
}

// Validate returns errors for keys that Kubernetes would refuse, or that occur twice.
func (s SecretSpec) Validate() []FieldError {
	v := &validation{}
	size := 0
	for _, key := range sortedKeys(s.Data) {
		size += len(s.Data[key])
		v.dataKey("data."+key, key)
	}
	for _, key := range sortedKeys(s.BinaryData) {
		size += len(s.BinaryData[key])
		v.dataKey("binaryData."+key, key)
		if _, twice := s.Data[key]; twice {
			v.add("binaryData."+key, "the key is in data too; give it once")
		}
	}
	if size > MaxSecretData {
		v.add("data", "the values have %d bytes; Kubernetes keeps at most %d, in one Secret or ConfigMap", size, MaxSecretData)
	}
	return v.errs
}

// validation gathers the fields at fault.
type validation struct{ errs []FieldError }

func (v *validation) add(field, format string, args ...any) {
	v.errs = append(v.errs, FieldError{Field: problem.Field(field), Message: fmt.Sprintf(format, args...)})
}

func (v *validation) objectName(field, name string) {
	if len(name) > maxSubname || !objectName.MatchString(name) {
		v.add(field, "%q is not a Kubernetes object name: lower case letters, digits, '-' and '.'", printable.Clip(name))
	}
}

func (v *validation) dataKey(field, key string) {
	if len(key) > maxSubname || !dataKey.MatchString(key) {
		v.add(printable.Clip(field), "a key may have letters, digits, '-', '_' and '.', and at most 253 of them")
	}
}

func (v *validation) ports(ports []Port) {
	names, container, service := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, p := range ports {
		at := fmt.Sprintf("ports[%d]", i)
		switch {
		case p.Name == "" && len(ports) > 1:
			v.add(at+".name", "every port needs a name when there is more than one")
		case p.Name != "" && names[p.Name]:
			v.add(at+".name", "%q is the name of another port", p.Name)
		}
		names[p.Name] = true
		protocol := cmp.Or(p.Protocol, "TCP")
		v.unique(container, fmt.Sprintf("%s/%d", protocol, p.Port), at+".port", "port")
		v.unique(service, fmt.Sprintf("%s/%d", protocol, p.ServicePort()), at+".service", "port of the Service")
	}
}

func (v *validation) unique(seen map[string]bool, value, field, what string) {
	if seen[value] {
		v.add(field, "%s %s is there twice", what, value)
	}
	seen[value] = true
}

func (v *validation) env(field string, env []EnvVar) {
	names := map[string]bool{}
	for i, e := range env {
		at := fmt.Sprintf("%s[%d]", field, i)
		v.unique(names, e.Name, at+".name", "variable")
		if count(e.Value != "", e.Secret != nil, e.ConfigMap != nil) > 1 {
			v.add(at, "exactly one of value, secret and configMap may be set for %q", e.Name)
		}
		v.keyRef(at+".secret", e.Secret)
		v.keyRef(at+".configMap", e.ConfigMap)
	}
}

func (v *validation) keyRef(field string, ref *KeyRef) {
	if ref == nil {
		return
	}
	v.objectName(field+".name", ref.Name)
	v.dataKey(field+".key", ref.Key)
}

func (v *validation) envFrom(field string, sources []EnvSource) {
	for i, s := range sources {
		at := fmt.Sprintf("%s[%d]", field, i)
		if count(s.Secret != "", s.ConfigMap != "") != 1 {
			v.add(at, "exactly one of secret and configMap must be set")
			continue
		}
		if s.Secret != "" {
			v.objectName(at+".secret", s.Secret)
		} else {
			v.objectName(at+".configMap", s.ConfigMap)
		}
	}
}

func (v *validation) resources(field string, r Resources) {
	v.amounts(field, "cpu", r.Requests.CPU, r.Limits.CPU)
	v.amounts(field, "memory", r.Requests.Memory, r.Limits.Memory)
	v.devices(field+".devices", r.Devices)
}

func (v *validation) amounts(field, name, request, limit string) {
	req, okReq := v.quantity(field+".requests."+name, request)
	lim, okLim := v.quantity(field+".limits."+name, limit)
	if okReq && okLim && req.Cmp(lim) > 0 {
		v.add(field+".requests."+name, "the request is more than the limit")
	}
}

// named checks for names that occur twice.
func (v *validation) named(s AppSpec) {
	names := map[string]bool{}
	for i, c := range s.InitContainers {
		at := fmt.Sprintf("initContainers[%d]", i)
		v.unique(names, c.Name, at+".name", "init container")
		v.env(at+".env", c.Env)
		v.resources(at+".resources", c.Resources)
	}
	names = map[string]bool{}
	for i, j := range s.Jobs {
		at := fmt.Sprintf("jobs[%d]", i)
		v.unique(names, j.Name, at+".name", "job")
		v.env(at+".env", j.Env)
		v.envFrom(at+".envFrom", j.EnvFrom)
		v.resources(at+".resources", j.Resources)
	}
	names = map[string]bool{}
	for i, volume := range s.Volumes {
		v.unique(names, volume.Name, fmt.Sprintf("volumes[%d].name", i), "volume")
	}
	names = map[string]bool{}
	for i, f := range s.Files {
		v.unique(names, f.Path, fmt.Sprintf("files[%d].path", i), "file")
	}
	if s.Spread != nil {
		for i, k := range s.Spread.Over {
			if !metaKey.MatchString(k) {
				v.add(fmt.Sprintf("spread.over[%d]", i), "%q is not a label of a node", printable.Clip(k))
			}
		}
	}
}

func (v *validation) quantity(field, s string) (resource.Quantity, bool) {
	if s == "" {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		v.add(field, "%q is not a Kubernetes quantity", printable.Clip(s))
	}
	return q, err == nil
}

func (v *validation) probe(field string, p *Probe) {
	if p != nil && count(p.HTTP != nil, p.TCP != nil, len(p.Exec) > 0) != 1 {
		v.add(field, "exactly one of http, tcp and exec must be set")
	}
}

// count returns how many of the conditions hold.
func count(conditions ...bool) int {
	n := 0
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
