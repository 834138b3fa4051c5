package appform

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Errors are what is wrong with fields, by their names. That of a row of the environment is
// env.NUMBER, from 0.
type Errors map[string]string

func (e Errors) add(field string, err error) {
	if err != nil && e[field] == "" {
		e[field] = err.Error()
	}
}

// Apply puts the form over a spec. It returns all fields at fault at once.
func (f Form) Apply(base runnerapi.AppSpec) (runnerapi.AppSpec, Errors) {
	spec, was, wrong := *base.DeepCopy(), Of(base), Errors{}
	spec.Image = f.Image
	if f.Image == "" {
		wrong[Image] = "name an image, such as nginx:1.29"
	}
	if f.Type != was.Type {
		spec.Type = runnerapi.AppType(f.Type)
	}
	spec.Command, spec.Args = changed(spec.Command, was.Command, f.Command), changed(spec.Args, was.Args, f.Args)
	if f.PullSecrets != was.PullSecrets {
		spec.ImagePullSecrets = strings.Fields(f.PullSecrets)
	}
	if f.AllowRoot != was.AllowRoot {
		spec.SetAllowRoot(f.AllowRoot)
	}
	if f.Replicas != was.Replicas {
		n, err := parseNumber(f.Replicas)
		spec.Replicas = n
		wrong.add(Replicas, err)
	}
	f.applySchedule(&spec)
	f.applyResources(&spec, was)
	f.applyPorts(&spec, was, wrong)
	f.applyIngress(&spec, was, wrong)
	f.applyEnv(&spec, wrong)
	f.applyProbe(&spec, was, wrong)
	return spec, wrong
}

// changed returns the lines of a field that was changed, and else what there was.
func changed(had []string, was, is string) []string {
	switch is {
	case was:
		return had
	case "":
		return nil
	}
	return strings.Split(is, "\n")
}

// parseNumber reads a number; nil for none.
func parseNumber(s string) (*int32, error) {
	if s == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%.40q is not a whole number", s)
	}
	small := int32(n)
	return &small, nil
}

func number(n *int32) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(int(*n))
}

func (f Form) applySchedule(spec *runnerapi.AppSpec) {
	if f.Schedule+f.TimeZone == "" {
		spec.Schedule = nil
		return
	}
	if spec.Schedule == nil {
		spec.Schedule = &runnerapi.Schedule{}
	}
	spec.Schedule.Cron, spec.Schedule.TimeZone = f.Schedule, f.TimeZone
}

// applyResources takes the amounts of the form if its size is Custom, or if one was changed.
func (f Form) applyResources(spec *runnerapi.AppSpec, was Form) {
	take := func(r runnerapi.Resources) { spec.Resources.Requests, spec.Resources.Limits = r.Requests, r.Limits }
	amounts := runnerapi.Resources{
		Requests: runnerapi.ResourceAmounts{CPU: f.CPU, Memory: f.Memory}, Limits: runnerapi.ResourceAmounts{CPU: f.CPULimit, Memory: f.MemoryLimit},
	}
	if f.Size == Custom || f.Size == was.Size && !sameAmounts(amounts, spec.Resources) {
		take(amounts)
		return
	}
	for _, p := range Presets {
		if p.Name == f.Size {
			take(p.Resources)
		}
	}
}

func (f Form) applyPorts(spec *runnerapi.AppSpec, was Form, wrong Errors) {
	if f.Ports == was.Ports {
		return
	}
	had := spec.Ports
	spec.Ports = nil
	for _, text := range Words(f.Ports) {
		p, err := ParsePort(text)
		wrong.add(Ports, err)
		same := func(h runnerapi.Port) bool {
			return h.Port == p.Port && cmp.Or(h.Protocol, "TCP") == cmp.Or(p.Protocol, "TCP")
		}
		if i := slices.IndexFunc(had, same); i >= 0 { // the cluster writes defaults into a spec
			p.Protocol, p.Optional = had[i].Protocol, had[i].Optional
		}
		spec.Ports = append(spec.Ports, p)
	}
}

func (f Form) applyIngress(spec *runnerapi.AppSpec, was Form, wrong Errors) {
	if f.Public == was.Public && f.Hosts == was.Hosts && f.PublicPorts == was.PublicPorts && f.guard() == was.guard() {
		return
	}
	ingress := runnerapi.Ingress{}
	if spec.Ingress != nil {
		ingress = *spec.Ingress
	}
	ingress.Public = f.Public
	if f.Hosts != was.Hosts {
		had := ingress.Hosts
		ingress.Hosts = nil
		for _, text := range Words(f.Hosts) {
			h := ParseHost(text)
			if i := slices.IndexFunc(had, func(was runnerapi.IngressHost) bool { return was.Host == h.Host && was.Path == h.Path }); i >= 0 {
				h = had[i]
			}
			ingress.Hosts = append(ingress.Hosts, h)
		}
	}
	if f.PublicPorts != was.PublicPorts {
		ingress.Ports = f.publicPorts(ingress.Ports, wrong)
	}
	if f.guard() != was.guard() {
		ingress.Visitors = f.visitors(ingress.Visitors)
	}
	spec.Ingress = &ingress
	if !ingress.Public && len(ingress.Hosts) == 0 && len(ingress.Ports) == 0 && ingress.Visitors == nil {
		spec.Ingress = nil
	}
}

// publicPorts returns those of the form, with what it does not show of those that there were.
func (f Form) publicPorts(had []runnerapi.IngressPort, wrong Errors) (ports []runnerapi.IngressPort) {
	for _, text := range Words(f.PublicPorts) {
		p, err := ParsePublicPort(text)
		wrong.add(PublicPorts, err)
		if i := slices.IndexFunc(had, func(h runnerapi.IngressPort) bool { return h.Port == p.Port && h.TCP() == p.TCP() }); i >= 0 {
			public := p.PublicPort
			p = had[i]
			p.PublicPort = public
		}
		ports = append(ports, p)
	}
	return ports
}

// visitors returns those of the form with what it does not show; nil for everyone.
func (f Form) visitors(had *runnerapi.Visitors) *runnerapi.Visitors {
	v := runnerapi.Visitors{}
	if had != nil {
		v = *had
	}
	v.AllowFrom, v.BasicAuthSecret, v.ServiceTokensSecret = append([]string(nil), Words(f.AllowFrom)...), f.BasicAuth, f.Tokens
	if text, to := signInText(v.SignIn); f.SignIn != text || f.SignInTo != to { // else a group with a space stays
		v.SignIn = f.signIn()
	}
	if reflect.ValueOf(v).IsZero() {
		return nil
	}
	return &v
}

func (f Form) applyEnv(spec *runnerapi.AppSpec, wrong Errors) {
	spec.Env = nil
	for i, row := range f.Env {
		e, err := runnerapi.EnvVar{Name: row.Name}, error(nil)
		switch row.From {
		case FromSecret:
			e.Secret, err = ParseKey(row.Value)
		case FromConfigMap:
			e.ConfigMap, err = ParseKey(row.Value)
		default:
			e.Value = row.Value
		}
		wrong.add("env."+strconv.Itoa(i), err)
		spec.Env = append(spec.Env, e)
	}
}

func (f Form) applyProbe(spec *runnerapi.AppSpec, was Form, wrong Errors) {
	if f.ProbePath == was.ProbePath && f.ProbePort == was.ProbePort {
		return
	}
	if f.ProbePath == "" {
		spec.Probes.Readiness = nil
		return
	}
	port, err := parseNumber(f.ProbePort)
	wrong.add(ProbePort, err)
	probe := Probe(f.ProbePath, 0)
	if had := spec.Probes.Readiness; had != nil && had.HTTP != nil {
		probe.PeriodSeconds = had.PeriodSeconds
	}
	switch {
	case port != nil:
		probe.HTTP.Port = *port
	case len(spec.Ports) > 0:
		probe.HTTP.Port = spec.Ports[0].Port
	default:
		wrong.add(ProbePort, errors.New("name the port, or give the App one"))
	}
	spec.Probes.Readiness = probe
}

// Words are separated by spaces, commas or ends of lines.
func Words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '\t' || r == '\r' })
}

// fieldOf are the form's fields by the beginning of a path in the spec, the longest first.
var fieldOf = []struct{ path, field string }{
	{"resources.requests.cpu", CPU}, {"resources.limits.cpu", CPULimit}, {"resources.requests.memory", Memory}, {"resources.limits.memory", MemoryLimit},
	{"probes.readiness.http.port", ProbePort}, {"probes.readiness", ProbePath}, {"ingress.hosts", Hosts}, {"ingress.ports", PublicPorts},
	{"ingress.visitors.allowFrom", AllowFrom}, {"ingress.visitors.signIn.secret", SignInTo}, {"ingress.visitors.signIn", SignIn}, {"ingress.visitors.serviceTokensSecret", Tokens}, {"ingress.visitors", BasicAuth}, {"ingress", Public},
	{"imagePullSecrets", PullSecrets}, {"image", Image}, {"type", Type}, {"schedule.timeZone", TimeZone}, {"schedule", Schedule}, {"replicas", Replicas}, {"ports", Ports},
	{"command", Command}, {"args", Args}, {"security", AllowRoot},
}

// FieldOf returns the form's field that a path in the spec is about; empty for none.
func FieldOf(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "body."), "spec.")
	if row, ok := strings.CutPrefix(path, "env["); ok {
		row, _, _ = strings.Cut(row, "]")
		return "env." + row
	}
	for _, known := range fieldOf {
		if rest, ok := strings.CutPrefix(path, known.path); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return known.field
		}
	}
	return ""
}
