package source_test

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// signedImages are an image that is signed as cosign does, and one that is not, with the public
// key.
func signedImages(t *testing.T) (signed, unsigned, key string, verify func(imagesignature.Request) error) {
	t.Helper()
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	transport := remote.WithTransport(server.Client().Transport)
	push := func() name.Digest {
		image, err := random.Image(100, 1)
		require.NoError(t, err)
		tag, err := name.NewTag(strings.TrimPrefix(server.URL, "https://") + "/shop/web:1")
		require.NoError(t, err)
		require.NoError(t, remote.Write(tag, image, transport))
		digest, err := image.Digest()
		require.NoError(t, err)
		return tag.Digest(digest.String())
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	ref := push()
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"}}`, ref.DigestStr())
	sig, err := private.Sign(nil, payload, crypto.Hash(0))
	require.NoError(t, err)
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:       static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)},
	})
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref.Context().Tag(strings.Replace(ref.DigestStr(), ":", "-", 1)+".sig"), image, transport))
	v := imagesignature.New(imagesignature.Config{
		Transport: server.Client().Transport, Secret: func(context.Context, string, string) ([]byte, error) { return nil, nil },
	})
	return ref.Name(), push().Name(), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), v.Verify
}

func TestSource_SignedImages(t *testing.T) {
	t.Parallel()
	p, repo := openRepository(t)
	signed, unsigned, key, verify := signedImages(t)
	p.policy.SetImages(verify)
	p.allow("rules:\n- name: git\n  commands: ['*', put-source, apply-manifests]\n  kinds: [Deployment.apps]\n  imageSigners:\n  - keys: [" + fmt.Sprintf("%q", key) + "]\n")
	deployment := func(image string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: tool}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: tool, image: '" + image + "'}]}}}\n"
	}
	commit := func(image string) {
		repo.Commit(map[string]string{"web/app.yaml": "image: " + image + "\n", "k8s/tool.yaml": deployment(image)})
	}
	tag, _, _ := strings.Cut(signed, "@")
	commit(tag + ":1")
	p.put("web", runnerapi.SourceSpec{Type: runnerapi.SourceApp, Path: "web/app.yaml"})
	p.put("tools", runnerapi.SourceSpec{Type: runnerapi.SourceManifests, Path: "k8s"})
	for _, c := range []struct{ image, code, says string }{
		{tag + ":1", string(runnerapi.CodePolicyDenied), "demands signed images by their digest"},
		{unsigned, string(imagesignature.Unsigned), "has no signature"},
	} {
		commit(c.image)
		for _, name := range []string{"web", "tools"} {
			status := p.sync(name)
			require.NotNil(t, status.Error, name)
			assert.Equal(t, c.code, status.Error.Code, name)
			assert.Contains(t, status.Error.Message, c.says, name)
		}
	}
	commit(signed)
	assert.Nil(t, p.sync("web").Error)
	assert.Nil(t, p.sync("tools").Error)
	app, err := p.engine.Get(t.Context(), p.key("web"))
	require.NoError(t, err)
	assert.Equal(t, signed, app.Spec.Image)
}
