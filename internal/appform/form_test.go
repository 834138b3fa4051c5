package appform_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/appform"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// TestForm_KeepsAllSpecs sends each form as it was filled in.
func TestForm_KeepsAllSpecs(t *testing.T) {
	for name, text := range runnertest.GoodSpecs() {
		spec := runnerapi.AppSpec{Image: "nginx:1"}
		require.NoError(t, json.Unmarshal([]byte(text), &spec), name)
		again, wrong := appform.Decode(sent(appform.Of(spec))).Apply(spec)
		assert.Empty(t, wrong, name)
		assert.Equal(t, spec, again, name)
	}
}

// sent is what a browser sends of a form that nobody changed.
func sent(f appform.Form) url.Values {
	v := url.Values{
		appform.Image: {f.Image}, appform.Type: {f.Type}, appform.Schedule: {f.Schedule}, appform.TimeZone: {f.TimeZone}, appform.Replicas: {f.Replicas},
		appform.Ports: {f.Ports}, appform.Hosts: {f.Hosts}, appform.AllowFrom: {f.AllowFrom}, appform.BasicAuth: {f.BasicAuth},
		appform.SignIn: {f.SignIn}, appform.SignInTo: {f.SignInTo}, appform.Tokens: {f.Tokens}, appform.Size: {f.Size},
		appform.CPU: {f.CPU}, appform.CPULimit: {f.CPULimit}, appform.Memory: {f.Memory}, appform.MemoryLimit: {f.MemoryLimit},
		appform.ProbePath: {f.ProbePath}, appform.ProbePort: {f.ProbePort}, appform.Command: {f.Command}, appform.Args: {f.Args}, appform.PullSecrets: {f.PullSecrets},
	}
	for field, on := range map[string]bool{appform.Public: f.Public, appform.AllowRoot: f.AllowRoot} {
		if on {
			v.Set(field, "true")
		}
	}
	for _, row := range append(f.Env, appform.Variable{From: appform.FromText}) {
		v[appform.EnvName], v[appform.EnvFrom], v[appform.EnvValue] = append(v[appform.EnvName], row.Name), append(v[appform.EnvFrom], row.From), append(v[appform.EnvValue], row.Value)
	}
	return v
}

func TestForm_Schedule(t *testing.T) {
	was := runnerapi.AppSpec{Image: "nginx:1", Type: runnerapi.TypeCronJob, Schedule: &runnerapi.Schedule{Cron: "@daily", Concurrency: "Allow"}}
	v := sent(appform.Of(was))
	v.Set(appform.TimeZone, "Europe/Berlin")
	spec, wrong := appform.Decode(v).Apply(was)
	require.Empty(t, wrong)
	assert.Equal(t, &runnerapi.Schedule{Cron: "@daily", TimeZone: "Europe/Berlin", Concurrency: "Allow"}, spec.Schedule)
	assert.Equal(t, appform.TimeZone, appform.FieldOf("spec.schedule.timeZone"))
	assert.Equal(t, appform.Schedule, appform.FieldOf("spec.schedule.cron"))

	v.Set(appform.Schedule, "")
	spec, _ = appform.Decode(v).Apply(was)
	assert.NotNil(t, spec.Schedule, "the agent refuses a time zone without a schedule")
}

func TestForm_FillsASpecIn(t *testing.T) {
	f := appform.Decode(url.Values{
		appform.Image: {" nginx:1 "}, appform.Type: {"Deployment"}, appform.Ports: {"http=8080, admin=9000:90"}, appform.Public: {"true"}, appform.Hosts: {"shop.example.com example.com/a"},
		appform.Replicas: {"3"}, appform.Size: {"small"}, appform.ProbePath: {"/healthz"}, appform.Args: {"--a\r\nb c\r\n"}, appform.AllowRoot: {"true"},
		appform.EnvName: {"A", "B", "", "C"}, appform.EnvFrom: {"text", "secret", "text", "configMap"}, appform.EnvValue: {"1\r\n2", "web/password", "", "web/level"},
	})
	spec, wrong := f.Apply(runnerapi.AppSpec{Ingress: &runnerapi.Ingress{Class: "nginx", Hosts: []runnerapi.IngressHost{{Host: "shop.example.com", TLSSecret: "tls"}}}})
	require.Empty(t, wrong)
	assert.Equal(t, runnerapi.AppSpec{
		Image: "nginx:1", Replicas: new(int32(3)),
		Ports:     []runnerapi.Port{{Name: "http", Port: 8080}, {Name: "admin", Port: 9000, Service: 90}},
		Ingress:   &runnerapi.Ingress{Class: "nginx", Public: true, Hosts: []runnerapi.IngressHost{{Host: "shop.example.com", TLSSecret: "tls"}, {Host: "example.com", Path: "/a"}}},
		Resources: appform.Presets[1].Resources, Probes: runnerapi.Probes{Readiness: appform.Probe("/healthz", 8080)}, Args: []string{"--a", "b c"},
		Env: []runnerapi.EnvVar{
			{Name: "A", Value: "1\n2"}, {Name: "B", Secret: &runnerapi.KeyRef{Name: "web", Key: "password"}}, {Name: "C", ConfigMap: &runnerapi.KeyRef{Name: "web", Key: "level"}},
		},
		Security: &runnerapi.Security{AllowRoot: true, AddCapabilities: spec.Security.AddCapabilities},
	}, spec)
	assert.Contains(t, spec.Security.AddCapabilities, "SETUID")
	f = appform.Of(spec)
	spec.Ingress.Visitors = &runnerapi.Visitors{RequestsPerSecond: 5}
	f.AllowFrom, f.BasicAuth = "203.0.113.0/24, 192.0.2.1", "users"
	guarded, wrong := f.Apply(spec)
	require.Empty(t, wrong)
	assert.Equal(t, &runnerapi.Visitors{AllowFrom: []string{"203.0.113.0/24", "192.0.2.1"}, BasicAuthSecret: "users", RequestsPerSecond: 5}, guarded.Ingress.Visitors)
	guarded.Ingress.Visitors.RequestsPerSecond = 0
	f = appform.Of(guarded)
	f.BasicAuth, f.SignIn, f.SignInTo, f.Tokens = "", "anna@example.com, group:shop", "web", "tokens"
	signed, wrong := f.Apply(guarded)
	require.Empty(t, wrong)
	assert.Equal(t, &runnerapi.SignIn{Secret: "web", Emails: []string{"anna@example.com"}, Groups: []string{"shop"}}, signed.Ingress.Visitors.SignIn)
	assert.Equal(t, "tokens", signed.Ingress.Visitors.ServiceTokensSecret)
	signed.Ingress.Visitors.SignIn.Groups = []string{"Domain Admins"}
	f = appform.Of(signed)
	f.Tokens = ""
	signed, wrong = f.Apply(signed)
	require.Empty(t, wrong)
	assert.Equal(t, []string{"Domain Admins"}, signed.Ingress.Visitors.SignIn.Groups, "what a form cannot show stays")
	f = appform.Of(guarded)
	f.AllowFrom, f.BasicAuth = "", ""
	spec, wrong = f.Apply(guarded)
	require.Empty(t, wrong)
	assert.Nil(t, spec.Ingress.Visitors)
	f = appform.Of(spec)
	gpu := runnerapi.AppSpec{Image: "a", Resources: runnerapi.Resources{Devices: map[string]int32{"nvidia.com/gpu": 1}}}
	for _, size := range []string{"", "small", appform.Custom} {
		sized := appform.Of(gpu)
		sized.Size = size
		kept, wrong := sized.Apply(gpu)
		require.Empty(t, wrong)
		assert.Equal(t, gpu.Resources.Devices, kept.Resources.Devices, "the form does not show them")
	}
	f.AllowRoot, f.Public, f.Hosts, f.Size, f.ProbePath, f.Ports = false, false, "", "", "", ""
	spec, wrong = f.Apply(spec)
	require.Empty(t, wrong)
	assert.Nil(t, spec.Security)
	assert.Nil(t, spec.Ingress)
	assert.Nil(t, spec.Probes.Readiness)
	assert.Nil(t, spec.Ports)
	assert.Zero(t, spec.Resources)
}

// TestForm_NamesAllWrongFields at once.
func TestForm_NamesAllWrongFields(t *testing.T) {
	_, wrong := appform.Decode(url.Values{
		appform.Ports: {"eighty"}, appform.Replicas: {"many"}, appform.ProbePath: {"/"}, appform.ProbePort: {"x"},
		appform.EnvName: {"A", "B"}, appform.EnvFrom: {"text", "secret"}, appform.EnvValue: {"", "web"},
	}).Apply(runnerapi.AppSpec{})
	assert.Equal(t, appform.Errors{
		appform.Image: "name an image, such as nginx:1.29", appform.Ports: `"eighty" is not a port from 1 to 65535: expected [NAME=]PORT[:SERVICE-PORT][/udp]`,
		appform.Replicas: `"many" is not a whole number`, appform.ProbePort: `"x" is not a whole number`, "env.1": `"web" does not name a key: expected NAME/KEY`,
	}, wrong)
}

func TestFieldOf(t *testing.T) {
	for path, field := range map[string]string{
		"image": appform.Image, "imagePullSecrets[0]": appform.PullSecrets, "ports[0].port": appform.Ports, "env[3].secret.name": "env.3",
		"ingress": appform.Public, "ingress.hosts[0].host": appform.Hosts, "ingress.visitors.allowFrom": appform.AllowFrom, "ingress.visitors.basicAuthSecret": appform.BasicAuth,
		"ingress.visitors.signIn.emails[0]": appform.SignIn, "ingress.visitors.signIn.secret": appform.SignInTo, "ingress.visitors.serviceTokensSecret": appform.Tokens,
		"resources.limits.memory": appform.MemoryLimit,
		"body.spec.replicas":      appform.Replicas, "initContainers[0].env[0]": "", "volumes": "",
	} {
		assert.Equal(t, field, appform.FieldOf(path), path)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("image=a&ports=http%3D80:8080/udp&env.name=A&env.from=secret&env.value=a/b&hosts=a/b&replicas=3&probePath=/&probePort=80")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		spec, wrong := appform.Decode(values).Apply(runnerapi.AppSpec{})
		if len(wrong) > 0 {
			return
		}
		again, wrong := appform.Decode(sent(appform.Of(spec))).Apply(spec)
		if assert.Empty(t, wrong) {
			assert.Equal(t, spec, again)
		}
	})
}
