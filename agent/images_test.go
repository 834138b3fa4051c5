package agent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// TestPolicy_ImageSigners: the agent verifies images by its guard, for what its Runners deploy.
func TestPolicy_ImageSigners(t *testing.T) {
	kubetest.ControlPlane(t)
	p := planetest.Start(t)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
rules:
- name: signed
  imageSigners:
  - images: ["127.0.0.1:1"]
    keys:
    - |
      -----BEGIN PUBLIC KEY-----
      MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEBMGANyOLijTOXoDTL5yb+qNcdw5E
      atVRN6hKecfewEZYuxdpwVO38QdoODvdI1WXMH5gEwT65L6soVRUAl5d8w==
      -----END PUBLIC KEY-----
`), 0o600))
	run(t, p, t.TempDir(), token(t, p), func(c *config.Config) { c.PolicyFile = file })
	ci := visitor(t, p, "ci", "", p.AwaitOnline(t, time.Time{}))
	key := runnerapi.Key{Namespace: "signed", Name: "web"}
	_, err := ci.Namespaces().Set(t.Context(), key.Namespace, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	const digest = "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	refused := func(err error, code runnerapi.Code, field, says string) {
		t.Helper()
		e := &runnerapi.Error{}
		require.ErrorAs(t, err, &e)
		assert.Equal(t, code, e.Code, e.Detail)
		assert.Contains(t, e.Field, field)
		assert.Contains(t, e.Detail, says)
	}
	deploy := func(image string) error {
		_, err := ci.Apps().Deploy(t.Context(), key, runnerapi.AppSpec{Image: image, ImagePullSecrets: []string{"none"}}, runnerapi.WriteOptions{})
		return err
	}
	refused(deploy("127.0.0.1:1/web:1"), runnerapi.CodePolicyDenied, "image", "demands signed images by their digest")
	refused(deploy("127.0.0.1:1/web"+digest), "address_forbidden", "image", `rule "signed" of the customer's policy: the signatures of image 127.0.0.1:1/web`+digest)
	require.NoError(t, deploy("registry.example.com/web:1"), "an image that no entry covers")
}
