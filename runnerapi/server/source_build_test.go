package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

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
