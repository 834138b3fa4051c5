package source_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ofSops is a file that the sops command has encrypted for one.agekey.
func ofSops(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../render/sops/testdata", name))
	require.NoError(t, err)
	return string(text)
}

const decrypted = "correct horse battery staple"

func TestSource_Decrypts(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	p.allow("rules:\n- name: git\n  commands: ['*', put-source, apply-manifests]\n  kinds: [Secret]\n  images: [registry.example.com]\n")
	repo.Commit(map[string]string{"k8s/secret.yaml": ofSops(t, "secret.yaml"), "web/app.yaml": ofSops(t, "app.yaml"), "web/image.yaml": ofSops(t, "image.yaml")})
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "sops-age"}, StringData: map[string]string{
		"age.agekey": ofSops(t, "two.agekey"), "note": "not an identity",
	}}
	manifests := runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: "k8s"}
	refused := func(name string, spec runnerapi.SourceSpec, code, says string) {
		t.Helper()
		p.put(name, spec)
		status := p.sync(name)
		require.NotNil(t, status.Error, says)
		assert.Equal(t, code, status.Error.Code)
		assert.Contains(t, status.Error.Message, says)
		spec.URL, spec.Credentials = p.git.URL("shop/deploy.git"), "git-deploy"
		dry := runner
		dry.DryRun = true
		_, err := p.keeper.Set(t.Context(), p.key(name), spec, dry)
		require.ErrorContains(t, err, says)
		assert.True(t, problem.Is(err, problem.Code(code)))
	}

	refused("all", manifests, "file_encrypted", "k8s/secret.yaml is encrypted with SOPS")
	refused("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/app.yaml"}, "file_encrypted", "web/app.yaml is encrypted with SOPS")
	manifests.DecryptionKeys = "sops-age"
	refused("all", manifests, "credentials_invalid", "there is no Secret sops-age")
	require.NoError(t, p.env.Client.Create(t.Context(), keys))
	refused("all", manifests, "decryption_key_missing", "k8s/secret.yaml cannot be decrypted with Secret sops-age in namespace "+p.namespace)
	keys.StringData = map[string]string{"age.agekey": ofSops(t, "one.agekey")}
	require.NoError(t, p.env.Client.Update(t.Context(), keys))

	status := p.sync("all")
	require.Nil(t, status.Error)
	made := &corev1.Secret{}
	require.NoError(t, p.env.Client.Get(t.Context(), types.NamespacedName{Namespace: p.namespace, Name: "web"}, made))
	assert.Equal(t, decrypted, string(made.Data["password"]))
	assert.Equal(t, "secret-token", string(made.Data["token"]))

	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/app.yaml", DecryptionKeys: "sops-age"})
	require.Nil(t, p.sync("web").Error)
	app, err := p.engine.Get(t.Context(), p.key("web"))
	require.NoError(t, err)
	assert.Equal(t, decrypted, app.Spec.Env[0].Value)

	// The policy's refusal quotes the image, which was encrypted.
	refused("image", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/image.yaml", DecryptionKeys: "sops-age"}, "policy_denied", "the text of this error is withheld")
	for _, record := range p.audited.all() {
		assert.NotContains(t, record.Message, "correct-horse")
		assert.NotContains(t, record.Message, decrypted)
	}
}

func TestConceal(t *testing.T) {
	secrets := []string{"ab", "hunter2", "correct horse battery staple", "a \"quoted\"\nvalue of two lines"}
	for _, text := range []string{
		`image "hunter2" is unknown`, "it begins with correct horse ba…", `got "a \"quoted\"\nvalue of two lines"`, "data: Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==",
	} {
		inField := problem.Errorf(problem.Conflict, "correct it", "several")
		inField.Fields = []problem.FieldError{{Field: "a", Message: text}}
		for _, err := range []error{
			problem.Errorf(problem.Invalid, "correct it", "%s", text), problem.Errorf(problem.Invalid, text, "it is wrong"), inField, errors.New(text),
		} {
			concealed := source.Conceal(err, secrets)
			assert.Contains(t, concealed.Error(), "is withheld", text)
			assert.NotContains(t, fmt.Sprintf("%+v", concealed), text)
		}
	}
	plain := problem.Errorf(problem.Invalid, "correct it", "it quotes nothing: correct it, horses")
	assert.Equal(t, error(plain), source.Conceal(plain, secrets))
	assert.NoError(t, source.Conceal(nil, secrets))
}
