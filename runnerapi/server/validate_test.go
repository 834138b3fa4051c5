package server_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/decode"
)

// refusals are what the API says of a spec: by its tags, then by its rules.
func refusals(t *testing.T, raw string) []runnerapi.FieldError {
	t.Helper()
	var tree map[string]any
	require.NoError(t, json.Unmarshal([]byte(raw), &tree))
	tree["image"] = "example.com/web:1"
	registry := huma.NewMapRegistry("#/", huma.DefaultSchemaNamer)
	schema := registry.Schema(reflect.TypeFor[runnerapi.AppSpec](), true, "")
	result := &huma.ValidateResult{}
	huma.Validate(registry, schema, huma.NewPathBuffer([]byte{}, 0), huma.ModeWriteToServer, tree, result)
	var out []runnerapi.FieldError
	for _, err := range result.Errors {
		detail := &huma.ErrorDetail{}
		require.ErrorAs(t, err, &detail)
		out = append(out, runnerapi.FieldError{Field: strings.TrimPrefix(detail.Location, "."), Message: detail.Message})
	}
	if len(out) > 0 {
		return out
	}
	body, err := json.Marshal(tree)
	require.NoError(t, err)
	var spec runnerapi.AppSpec
	require.NoError(t, decode.Decode(body, &spec))
	return append(spec.ValidateName("web"), spec.Validate()...)
}

// lastEntry is the entry of a list that breaks a rule about the list.
var lastEntry = regexp.MustCompile(`\[\d+\]$`)

func TestAppSpec_RefusesInvalid(t *testing.T) {
	for name, bad := range runnertest.BadSpecs() {
		t.Run(name, func(t *testing.T) {
			errs := refusals(t, bad.JSON)
			require.NotEmpty(t, errs)
			field := strings.TrimSuffix(errs[0].Field, ".") // huma names the object where a required field is missing
			assert.True(t, strings.HasPrefix(bad.Field, field) || strings.HasPrefix(bad.Field, lastEntry.ReplaceAllString(field, "")), "%+v", errs)
			if bad.Message != "" && bad.Message != "Duplicate value" {
				assert.Contains(t, errs[0].Message, bad.Message)
			}
			assert.Len(t, errs, 1, "%+v", errs)
		})
	}
	for name, good := range runnertest.GoodSpecs() {
		assert.Empty(t, refusals(t, good), name)
	}
}

func TestAppSpec_ValidatesNameAndChange(t *testing.T) {
	long := strings.Repeat("a", 53)
	assert.Empty(t, runnerapi.AppSpec{}.ValidateName(long))
	assert.NotEmpty(t, runnerapi.AppSpec{Type: runnerapi.TypeCronJob}.ValidateName(long))
	assert.NotEmpty(t, runnerapi.AppSpec{Type: runnerapi.TypeStatefulSet}.ValidateName(long))
	assert.NotEmpty(t, runnerapi.AppSpec{}.ValidateName("1web"))

	claim := func(size, mode string) runnerapi.AppSpec {
		return runnerapi.AppSpec{Type: runnerapi.TypeStatefulSet, Volumes: []runnerapi.Volume{
			{Name: "data", MountPath: "/" + size, Claim: &runnerapi.VolumeClaim{Size: size, AccessMode: mode}},
		}}
	}
	assert.Empty(t, runnerapi.AppSpec{}.ValidateChange(runnerapi.AppSpec{Type: runnerapi.TypeDeployment}))
	assert.Empty(t, claim("1Gi", "").ValidateChange(claim("1Gi", "ReadWriteOnce")))
	errs := claim("2Gi", "").ValidateChange(claim("1Gi", ""))
	require.Len(t, errs, 1)
	assert.Equal(t, "volumes", errs[0].Field)
	errs = runnerapi.AppSpec{Type: runnerapi.TypeJob}.ValidateChange(runnerapi.AppSpec{})
	require.Len(t, errs, 1)
	assert.Equal(t, runnerapi.FieldError{Field: "type", Message: runnerapi.TypeFixed}, errs[0])
}

// The schema of the API refuses this before; others call Validate alone. For the rest of the rules
// see runnertest.BadSpecs.
func TestAppSpec_ValidatesQuantity(t *testing.T) {
	spec := runnerapi.AppSpec{Resources: runnerapi.Resources{Limits: runnerapi.ResourceAmounts{CPU: "much"}}}
	errs := spec.Validate()
	require.Len(t, errs, 1)
	assert.Equal(t, "resources.limits.cpu", errs[0].Field)
}

func TestAppSettled(t *testing.T) {
	status := func(phase runnerapi.Phase, observed int64, d *runnerapi.Diagnosis) runnerapi.App {
		return runnerapi.App{Generation: 2, Status: runnerapi.AppStatus{Phase: phase, ObservedGeneration: observed, Diagnosis: d}}
	}
	assert.True(t, status(runnerapi.PhaseHealthy, 2, nil).Settled())
	assert.True(t, status(runnerapi.PhaseFailed, 2, nil).Settled())
	assert.True(t, status(runnerapi.PhaseDegraded, 2, &runnerapi.Diagnosis{}).Settled())
	assert.False(t, status(runnerapi.PhaseDegraded, 2, nil).Settled())
	assert.False(t, status(runnerapi.PhaseHealthy, 1, nil).Settled(), "speaks of the spec before")
	assert.False(t, status(runnerapi.PhaseProgressing, 2, nil).Settled())
}

// What passes the decoder and the rules must survive them again: the reconciler
// applies the same rules to what the API let through.
func FuzzDeployBody(f *testing.F) {
	f.Add([]byte(`{"image":"a","replicas":2,"ports":[{"port":80}]}`))
	f.Add([]byte(`{"image":"a","image":"b"}`))
	f.Add([]byte(`{"env":[{"name":"A","secret":{"name":"s","key":"k"}}],"resources":{"limits":{"cpu":"1e9"}}}`))
	for _, good := range runnertest.GoodSpecs() {
		f.Add([]byte(good))
	}
	for _, bad := range runnertest.BadSpecs() {
		f.Add([]byte(bad.JSON))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var spec runnerapi.AppSpec
		if decode.Decode(body, &spec) != nil || len(spec.Validate()) > 0 {
			return
		}
		again, err := json.Marshal(spec)
		require.NoError(t, err)
		var back runnerapi.AppSpec
		if err := decode.Decode(again, &back); err != nil || len(back.Validate()) > 0 {
			t.Fatalf("%s: %v %v", again, err, back.Validate())
		}
	})
}

// checked is a body that the API decodes and checks.
type checked interface{ Validate() []runnerapi.FieldError }

// fuzzBody has what passes the decoder checked: a refusal names a field.
func fuzzBody[T checked](f *testing.F, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var spec T
		if decode.Decode(body, &spec) != nil {
			return
		}
		for _, e := range spec.Validate() {
			require.True(t, e.Field != "" && e.Message != "", "%+v", e)
		}
	})
}

func FuzzSecretBody(f *testing.F) {
	fuzzBody[runnerapi.SecretSpec](f, `{"data":{"A":"hunter2"}}`, `{"data":{"A":7},"binaryData":{"B":"AAEC"}}`)
}

func FuzzConfigMapBody(f *testing.F) {
	fuzzBody[runnerapi.ConfigMapSpec](f, `{"data":{"A":"b"}}`, `{"data":{"":"b"},"binaryData":{"../x":"AAEC"}}`)
}

func FuzzNamespaceBody(f *testing.F) {
	fuzzBody[runnerapi.NamespaceSpec](f, `{"quota":{"cpu":"4","memory":"8Gi"},"labels":{"team":"web"}}`, `{"quota":{"cpu":"1e99"},"adopt":true}`)
}

func FuzzScaleBody(f *testing.F) {
	fuzzBody[runnerapi.Scale](f, `{"replicas":3}`, `{"min":5,"max":2,"cpuPercent":0}`)
}

// The message has what was meant.
func TestValidate_RefusesMemoryWithoutUnit(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	const memory = `{"requests":{"memory":"AMOUNT"}}`
	for field, c := range map[string]struct{ path, body string }{
		"resources.requests.memory":                   {"/production/apps/web", `{"image":"a","resources":` + memory + `}`},
		"initContainers[0].resources.requests.memory": {"/production/apps/web", `{"image":"a","initContainers":[{"name":"prepare","resources":` + memory + `}]}`},
		"jobs[0].resources.requests.memory":           {"/production/pipelines/release", `{"jobs":[{"name":"test","image":"a","resources":` + memory + `}]}`},
		"quota.requests.memory":                       {"/staging", `{"quota":` + memory + `}`},
		"defaultLimits.requests.memory":               {"/staging", `{"defaultLimits":` + memory + `}`},
		"build.resources.requests.memory": {"/production/sources/web", `{"url":"https://git.example.com/web.git","type":"app","path":"app.yaml",
			"build":{"image":"registry.example.com/web","resources":` + memory + `}}`},
	} {
		send := func(amount string) (*http.Response, []byte) {
			return r.do(http.MethodPut, "/v1/namespaces"+c.path, strings.Replace(c.body, "AMOUNT", amount, 1))
		}
		for amount, says := range map[string]string{"64": `"64" is 64 bytes, which no program runs in: write "64Mi"`, "512k": `"512k" is less than 1Mi`} {
			resp, body := send(amount)
			refused := refusalOf(t, http.StatusUnprocessableEntity, resp, body)
			assert.Equal(t, field, refused.Field)
			assert.Contains(t, refused.Detail, says, field)
		}
		for _, amount := range []string{"1Mi", "67108864", "0"} {
			resp, body := send(amount)
			assert.Less(t, resp.StatusCode, 300, "%s: %s", field, body)
		}
	}
}

func building(change func(*runnerapi.SourceSpec)) runnerapi.SourceSpec {
	s := runnerapi.SourceSpec{
		URL: "https://git.example.com/shop/web.git", Type: runnerapi.SourceApp, Path: "app.yaml", Credentials: "git-deploy",
		Build: &runnerapi.SourceBuild{BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"}},
	}
	change(&s)
	return s
}

func TestSource_ValidatesBuild(t *testing.T) {
	assert.Empty(t, building(func(*runnerapi.SourceSpec) {}).Validate("web"))
	for field, change := range map[string]func(*runnerapi.SourceSpec){
		"build":                 func(s *runnerapi.SourceSpec) { s.Type = runnerapi.SourceManifests },
		"build.image":           func(s *runnerapi.SourceSpec) { s.Build.Image = "registry.example.com/shop/web:latest" },
		"build.context":         func(s *runnerapi.SourceSpec) { s.Build.Context = "../x" },
		"build.dockerfile":      func(s *runnerapi.SourceSpec) { s.Build.Dockerfile = "docker/" },
		"build.namespace":       func(s *runnerapi.SourceSpec) { s.Build.Namespace = "A_b" },
		"build.gitCredentials":  func(s *runnerapi.SourceSpec) { s.Build.GitCredentials = "A b" },
		"build.pushCredentials": func(s *runnerapi.SourceSpec) { s.Build.PushCredentials = "A b" },
		"path":                  func(s *runnerapi.SourceSpec) { s.AppSpec = "replicas: 1" },
		"appSpec":               func(s *runnerapi.SourceSpec) { s.Path, s.AppSpec, s.Build = "", "replicas: 1", nil },
	} {
		bad := building(change).Validate("web")
		if assert.NotEmpty(t, bad, field) {
			assert.Equal(t, field, bad[0].Field)
		}
	}
}

func TestSource_ValidatesReport(t *testing.T) {
	reporting := func(change func(*runnerapi.SourceReport)) []runnerapi.FieldError {
		r := &runnerapi.SourceReport{Forge: runnerapi.GitHub, Credentials: "git-status", Environment: "production", EnvironmentURL: "https://shop.example.com"}
		change(r)
		return building(func(s *runnerapi.SourceSpec) { s.Report = r }).Validate("web")
	}
	assert.Empty(t, reporting(func(*runnerapi.SourceReport) {}))
	for field, change := range map[string]func(*runnerapi.SourceReport){
		"report.forge":          func(r *runnerapi.SourceReport) { r.Forge, r.Environment = "bitbucket", "" },
		"report.credentials":    func(r *runnerapi.SourceReport) { r.Credentials = "" },
		"report.api":            func(r *runnerapi.SourceReport) { r.API = "https://me@git.example.com/api/v3" },
		"report.environment":    func(r *runnerapi.SourceReport) { r.Forge = runnerapi.Gitea },
		"report.environmentUrl": func(r *runnerapi.SourceReport) { r.EnvironmentURL = "javascript:alert(1)" },
	} {
		bad := reporting(change)
		if assert.Len(t, bad, 1, field) {
			assert.Equal(t, field, bad[0].Field)
		}
	}
}

func TestSource_ValidatesPreviews(t *testing.T) {
	with := func(change func(*runnerapi.SourceSpec)) []runnerapi.FieldError {
		s := building(func(s *runnerapi.SourceSpec) {
			s.Previews, s.Report = &runnerapi.SourcePreviews{Path: "overlays/preview"}, &runnerapi.SourceReport{Forge: runnerapi.GitHub, Credentials: "git-status"}
		})
		change(&s)
		return s.Validate("web")
	}
	assert.Empty(t, with(func(*runnerapi.SourceSpec) {}))
	for field, change := range map[string]func(*runnerapi.SourceSpec){
		"report":               func(s *runnerapi.SourceSpec) { s.Report = nil },
		"previews.path":        func(s *runnerapi.SourceSpec) { s.Previews.Path = "../x" },
		"previews.valuesFiles": func(s *runnerapi.SourceSpec) { s.Previews.ValuesFiles = []string{"a.yaml"} },
		"previews.expireAfter": func(s *runnerapi.SourceSpec) { s.Previews.ExpireAfter = "1m" },
		"previews.secrets[0]":  func(s *runnerapi.SourceSpec) { s.Previews.Secrets = []string{"A_B"} },
		"previews.quota.requests.cpu": func(s *runnerapi.SourceSpec) {
			s.Previews.Quota = &runnerapi.NamespaceQuota{Requests: runnerapi.ResourceAmounts{CPU: "much"}}
		},
		"previewOf": func(s *runnerapi.SourceSpec) {
			s.PreviewOf = &runnerapi.SourcePreviewOf{Namespace: "shop", Source: "web", Number: 1}
		},
	} {
		bad := with(change)
		if assert.Len(t, bad, 1, field) {
			assert.Equal(t, field, bad[0].Field)
		}
	}
}

// TestSource_Preview: what a preview has of its source, and what it has not.
func TestSource_Preview(t *testing.T) {
	s := runnerapi.Source{Namespace: "shop", Name: "web", Spec: building(func(s *runnerapi.SourceSpec) {
		s.Previews = &runnerapi.SourcePreviews{Path: "preview.yaml", Comment: true}
		s.Report = &runnerapi.SourceReport{Forge: runnerapi.GitHub, Credentials: "git-status", Environment: "production", EnvironmentURL: "https://shop.example.com"}
		s.DecryptionKeys, s.Promote = "sops-age", &runnerapi.SourcePromotion{From: "staging"}
	})}
	p := s.Preview(12, strings.Repeat("0a", 20))
	assert.Equal(t, runnerapi.PreviewNamespace(runnerapi.Key{Namespace: "shop", Name: "web"}, 12), p.Namespace)
	assert.Equal(t, "web", p.Name)
	assert.Equal(t, "preview.yaml", p.Spec.Path)
	assert.Equal(t, runnerapi.GitRef{Commit: strings.Repeat("0a", 20)}, p.Spec.Ref)
	assert.Equal(t, "preview-web-12", p.Spec.Report.Environment)
	assert.Empty(t, p.Spec.Report.EnvironmentURL)
	assert.Empty(t, p.Spec.DecryptionKeys, "who writes a request does not see what is encrypted")
	assert.Nil(t, p.Spec.Promote)
	assert.Equal(t, "production", s.Spec.Report.Environment, "the source is as it was")
	long := runnerapi.Key{Namespace: strings.Repeat("a", 63), Name: strings.Repeat("b", 53)}
	assert.Len(t, runnerapi.PreviewNamespace(long, 12), 63)
	assert.NotEqual(t, runnerapi.PreviewNamespace(runnerapi.Key{Namespace: "a", Name: "b-c"}, 1), runnerapi.PreviewNamespace(runnerapi.Key{Namespace: "a-b", Name: "c"}, 1))
}

func TestSource_BuildKey(t *testing.T) {
	s := runnerapi.Source{Namespace: "shop", Name: "web", Spec: building(func(*runnerapi.SourceSpec) {})}
	other := s
	other.Namespace = "blog"
	assert.Equal(t, runnerapi.DefaultBuildNamespace, s.BuildKey().Namespace)
	assert.NotEqual(t, s.BuildKey(), other.BuildKey(), "two namespaces share one for builds")
	s.Name = strings.Repeat("a-", 26) + "b"
	s.Spec.Build.Namespace = "elsewhere"
	commit := strings.Repeat("0a", 20)
	spec := s.Spec.BuildSpec(commit, "run")
	assert.Empty(t, spec.Validate(s.BuildKey().Name))
	assert.Equal(t, "elsewhere", s.BuildKey().Namespace)
	assert.Equal(t, runnerapi.GitRef{Commit: commit}, spec.Git.Ref)
	assert.Equal(t, "git-deploy", spec.Git.Credentials)
	s.Spec.Build.GitCredentials = "git-builds"
	assert.Equal(t, "git-builds", s.Spec.BuildSpec(commit, "run").Git.Credentials)

	// A build begun by an agent of the version before keeps its name, which is a digest of this.
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	assert.Equal(t, `{"git":{"url":"https://git.example.com/shop/web.git","ref":{"commit":"`+commit+`"},"credentials":"git-deploy"},"image":"registry.example.com/shop/web","run":"run"}`, string(text))
}
