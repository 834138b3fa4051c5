package render_test

import (
	"encoding/base64"
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
)

func ofSops(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("sops/testdata/" + name)
	require.NoError(t, err)
	return string(text)
}

// decrypted has a process decrypt the files of a job, as a source does.
func decrypted(t *testing.T, j render.Job, identity string) (render.Job, render.Result) {
	t.Helper()
	r, err := run(t, render.Job{Type: render.Decrypt, Files: j.Files, Keys: render.Keys{
		Source: "Secret sops-age in namespace shop", Identities: map[string][]byte{"age.agekey": []byte(ofSops(t, identity))},
	}})
	require.NoError(t, err)
	j.Files, j.Undecrypted = maps.Clone(j.Files), r.Undecrypted
	for _, text := range r.Texts {
		j.Files[text.Name] = text.Body
	}
	return j, r
}

const password = "correct horse battery staple"

func TestRender_EncryptedFiles(t *testing.T) {
	secret, env, blob := ofSops(t, "secret.yaml"), ofSops(t, "app.env"), ofSops(t, "blob.bin")
	kustomization := files(
		"base/kustomization.yaml", "resources: [secret.yaml]\nsecretGenerator:\n- name: env\n  envs: [app.env]\n- name: blob\n  files: [blob.bin]\n",
		"base/secret.yaml", secret, "base/app.env", env, "base/blob.bin", blob, "other/secret.yaml", ofSops(t, "pq.yaml"))
	chart := chartFiles("web/templates/secret.yaml", secret, "db.yaml", ofSops(t, "only.yaml"),
		"web/templates/user.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: user}\ndata: {user: {{ .Values.db_secret.user }}}\n")
	for name, c := range map[string]struct {
		job  render.Job
		file string // the first that is needed
		want []string
	}{
		"manifests": {render.Job{Type: render.Manifests, Files: files("a/secret.yaml", secret, "README.md", "ENC[AES256_GCM, sops")}, "a/secret.yaml", []string{password}},
		"kustomize": {render.Job{Type: render.Kustomize, Path: "base", Files: kustomization}, "base/", []string{
			password, base64.StdEncoding.EncodeToString([]byte("shop")), base64.StdEncoding.EncodeToString([]byte(ofSops(t, "plain/blob.bin")))[:40],
		}},
		"chart": {render.Job{Type: render.Chart, Path: "web", Files: chart, Release: "shop", ValuesFiles: []string{"db.yaml"}}, "web/templates/secret.yaml", []string{password, "user: shop"}},
	} {
		_, err := run(t, c.job)
		require.ErrorContains(t, err, c.file, name)
		require.ErrorContains(t, err, "is encrypted with SOPS, and the source has no keys", name)
		assert.True(t, problem.Is(err, "file_encrypted"), name)

		job, opened := decrypted(t, c.job, "one.agekey")
		r, err := run(t, job)
		require.NoError(t, err, name)
		for _, want := range c.want {
			assert.Contains(t, all(r), want, name)
		}
		assert.NotContains(t, all(r), "ENC[AES256_GCM", name)
		assert.Contains(t, opened.Decrypted, map[string]string{"chart": "shop"}[name]+map[string]string{"manifests": password, "kustomize": password}[name], name)

		job, _ = decrypted(t, c.job, "pq.agekey")
		_, err = run(t, job)
		require.ErrorContains(t, err, "cannot be decrypted with Secret sops-age in namespace shop: the file is encrypted for age1", name)
		assert.True(t, problem.Is(err, "decryption_key_missing"), name)
	}
}

func TestRender_EncryptedFilesUnneeded(t *testing.T) {
	job, r := decrypted(t, render.Job{Type: render.Kustomize, Path: "base", Files: files(
		"base/kustomization.yaml", "resources: [secret.yaml]\n", "base/secret.yaml", ofSops(t, "secret.yaml"), "other/secret.yaml", ofSops(t, "pq.yaml"))}, "one.agekey")
	assert.Contains(t, r.Undecrypted, "other/secret.yaml")
	_, err := run(t, job)
	require.NoError(t, err, "a file of another cluster")
}

func TestRender_DecryptionKeysInvalid(t *testing.T) {
	_, err := run(t, render.Job{Type: render.Decrypt, Files: files("a.yaml", ofSops(t, "secret.yaml")), Keys: render.Keys{
		Source: "Secret sops-age in namespace shop", Identities: map[string][]byte{"age.agekey": []byte("AGE-SECRET-KEY-1HUNTER2")},
	}})
	require.ErrorContains(t, err, "Secret sops-age in namespace shop cannot decrypt: its key age.agekey is not a file of age identities")
	assert.True(t, problem.Is(err, render.KeysInvalid))
	assert.NotContains(t, err.Error(), "HUNTER2")
}
