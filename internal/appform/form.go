package appform

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The names of the form's fields.
const (
	Image       = "image"
	Type        = "type"
	Schedule    = "schedule"
	TimeZone    = "timeZone"
	Replicas    = "replicas"
	Ports       = "ports"
	Public      = "public"
	Hosts       = "hosts"
	PublicPorts = "publicPorts"
	AllowFrom   = "allowFrom"
	BasicAuth   = "basicAuth"
	SignIn      = "signIn"
	SignInTo    = "signInTo"
	Tokens      = "tokens"
	EnvName     = "env.name"
	EnvFrom     = "env.from"
	EnvValue    = "env.value"
	Size        = "size"
	CPU         = "cpu"
	CPULimit    = "cpuLimit"
	Memory      = "memory"
	MemoryLimit = "memoryLimit"
	ProbePath   = "probePath"
	ProbePort   = "probePort"
	Command     = "command"
	Args        = "args"
	PullSecrets = "pullSecrets"
	AllowRoot   = "allowRoot"
)

// Form has the fields of a form. A field that is left as it was leaves its part of the spec as it
// was, so a form loses nothing that it does not show.
type Form struct {
	Image, Type, Replicas              string
	Schedule, TimeZone                 string
	Ports, Hosts, AllowFrom            string // several are separated by spaces
	PublicPorts                        string // several are separated by spaces
	BasicAuth, SignInTo, Tokens        string // Secrets
	SignIn                             string // emails, and groups as group:NAME
	Public, AllowRoot                  bool
	Env                                []Variable
	Size                               string // the name of a Preset, or Custom
	CPU, CPULimit, Memory, MemoryLimit string
	ProbePath, ProbePort               string
	Command, Args                      string // one argument a line
	PullSecrets                        string
}

// Where the value of a variable comes from.
const (
	FromText      = "text"
	FromSecret    = "secret"
	FromConfigMap = "configMap"
)

// Variable is a row of the environment. Value is the value itself, or NAME/KEY of a Secret or
// ConfigMap.
type Variable struct{ Name, From, Value string }

// Decode reads the fields that a browser sends. A row without a name and a value is none.
func Decode(v url.Values) Form {
	text := func(name string) string { return strings.TrimSpace(v.Get(name)) }
	f := Form{
		Image: text(Image), Type: text(Type), Schedule: text(Schedule), TimeZone: text(TimeZone), Replicas: text(Replicas),
		Ports: text(Ports), Hosts: text(Hosts), PublicPorts: text(PublicPorts), AllowFrom: text(AllowFrom), BasicAuth: text(BasicAuth), SignIn: text(SignIn), SignInTo: text(SignInTo), Tokens: text(Tokens), Public: v.Get(Public) == "true", AllowRoot: v.Get(AllowRoot) == "true",
		Size: text(Size), CPU: text(CPU), CPULimit: text(CPULimit), Memory: text(Memory), MemoryLimit: text(MemoryLimit),
		ProbePath: text(ProbePath), ProbePort: text(ProbePort),
		Command: lines(v.Get(Command)), Args: lines(v.Get(Args)), PullSecrets: text(PullSecrets),
	}
	from, values := v[EnvFrom], v[EnvValue]
	for i, name := range v[EnvName] {
		row := Variable{Name: strings.TrimSpace(name), From: FromText}
		if i < len(from) && (from[i] == FromSecret || from[i] == FromConfigMap) {
			row.From = from[i]
		}
		if i < len(values) {
			row.Value = strings.ReplaceAll(values[i], "\r\n", "\n")
		}
		if row.Name != "" || row.Value != "" {
			f.Env = append(f.Env, row)
		}
	}
	return f
}

// lines returns a text as browsers send it with the ends of lines of this system, without empty
// lines at its end.
func lines(text string) string {
	return strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
}

// Of returns the form of a spec.
func Of(s runnerapi.AppSpec) Form {
	f := Form{
		Image: s.Image, Type: string(cmp.Or(s.Type, runnerapi.TypeDeployment)), Command: strings.Join(s.Command, "\n"), Args: strings.Join(s.Args, "\n"),
		PullSecrets: strings.Join(s.ImagePullSecrets, " "), Replicas: number(s.Replicas), AllowRoot: s.Security != nil && s.Security.AllowRoot,
		CPU: s.Resources.Requests.CPU, CPULimit: s.Resources.Limits.CPU, Memory: s.Resources.Requests.Memory, MemoryLimit: s.Resources.Limits.Memory,
		Size: sizeOf(s.Resources),
	}
	if s.Schedule != nil {
		f.Schedule, f.TimeZone = s.Schedule.Cron, s.Schedule.TimeZone
	}
	ports, hosts := make([]string, 0, len(s.Ports)), []string{}
	for _, p := range s.Ports {
		ports = append(ports, portText(p))
	}
	if s.Ingress != nil {
		f.Public = s.Ingress.Public
		if v := s.Ingress.Visitors; v != nil {
			f.AllowFrom, f.BasicAuth, f.Tokens = strings.Join(v.AllowFrom, " "), v.BasicAuthSecret, v.ServiceTokensSecret
			f.SignIn, f.SignInTo = signInText(v.SignIn)
		}
		public := make([]string, 0, len(s.Ingress.Ports))
		for _, p := range s.Ingress.Ports {
			public = append(public, publicPortText(p))
		}
		f.PublicPorts = strings.Join(public, " ")
		for _, h := range s.Ingress.Hosts {
			hosts = append(hosts, h.Host+h.Path)
		}
	}
	f.Ports, f.Hosts = strings.Join(ports, " "), strings.Join(hosts, " ")
	for _, e := range s.Env {
		f.Env = append(f.Env, variable(e))
	}
	if p := s.Probes.Readiness; p != nil && p.HTTP != nil {
		f.ProbePath, f.ProbePort = p.HTTP.Path, number(&p.HTTP.Port)
	}
	return f
}

func variable(e runnerapi.EnvVar) Variable {
	switch {
	case e.Secret != nil:
		return Variable{e.Name, FromSecret, e.Secret.Name + "/" + e.Secret.Key}
	case e.ConfigMap != nil:
		return Variable{e.Name, FromConfigMap, e.ConfigMap.Name + "/" + e.ConfigMap.Key}
	}
	return Variable{e.Name, FromText, e.Value}
}
