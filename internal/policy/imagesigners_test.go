package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const cosignKey = `|
        -----BEGIN PUBLIC KEY-----
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEBMGANyOLijTOXoDTL5yb+qNcdw5E
        atVRN6hKecfewEZYuxdpwVO38QdoODvdI1WXMH5gEwT65L6soVRUAl5d8w==
        -----END PUBLIC KEY-----
`

const signedRules = `
rules:
- name: shop
  commands: ["*", apply-manifests]
  kinds: [Deployment.apps]
  imageSigners:
  - images: [registry.example.com/shop]
    keys:
    - ` + cosignKey

const signedDigest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestImageSigners_OfMatchingRule(t *testing.T) {
	doc, err := policy.Parse([]byte(signedRules))
	require.NoError(t, err)
	require.Len(t, doc.Summary(), 1)
	assert.Regexp(t, `^rule "shop": images from registry\.example\.com/shop are signed by ECDSA key sha256:[0-9a-f]{16}…, or refused$`, doc.Summary()[0])
	p := policy.New("a test")
	p.Set(doc, nil)
	deploy := func(app runnerapi.AppSpec) error {
		return p.Decide(runnerapi.Intent{Command: "put-app", Access: runnerapi.Writes, Runner: "ci", Namespace: "shop", Name: "web", App: &app})
	}
	signed := runnerapi.AppSpec{Image: "registry.example.com/shop/web:1@" + signedDigest, ImagePullSecrets: []string{"pull"}}
	require.ErrorContains(t, deploy(signed), "verifies no signatures", "nothing verifies")

	var asked []imagesignature.Request
	var refused error
	p.SetImages(func(r imagesignature.Request) error { asked = append(asked, r); return refused })
	require.NoError(t, deploy(runnerapi.AppSpec{Image: "docker.io/library/nginx:1"}), "another registry")
	require.NoError(t, deploy(runnerapi.AppSpec{Image: "registry.example.com/shopping/web:1"}), "another repository")
	assert.Empty(t, asked)

	require.NoError(t, deploy(signed))
	require.Len(t, asked, 1)
	assert.Equal(t, signed.Image, asked[0].Image)
	assert.Equal(t, []string{"ci", "shop", "pull"}, []string{asked[0].Runner, asked[0].Namespace, asked[0].PullSecrets[0]})
	assert.Len(t, asked[0].Signers, 1)

	known := &problem.Error{}
	for image, fix := range map[string]string{
		"registry.example.com/shop/web:1": "name the digest: registry.example.com/shop/web:1@sha256:… (crane digest registry.example.com/shop/web:1 prints it)",
		"registry.example.com/shop/web":   "name the digest: registry.example.com/shop/web@sha256:…",
	} {
		app := signed
		app.InitContainers = []runnerapi.InitContainer{{Name: "init", Image: image}}
		require.ErrorAs(t, deploy(app), &known)
		assert.Equal(t, runnerapi.CodePolicyDenied, known.Code)
		assert.Equal(t, "initContainers[0].image", known.Field)
		assert.Contains(t, known.Fix, fix)
	}

	kept := problem.New(403, problem.Code(imagesignature.Unsigned), "sign it", "image x has no signature")
	refused = kept
	require.ErrorAs(t, deploy(signed), &known)
	assert.Equal(t, problem.Code(imagesignature.Unsigned), known.Code)
	assert.Equal(t, `rule "shop" of the customer's policy: image x has no signature`, known.Detail)
	assert.Equal(t, "image", known.Field)
	assert.Empty(t, kept.Field, "it may be kept for other commands")
	rule, err := p.Explain(runnerapi.Intent{Command: "put-build", Access: runnerapi.Writes, Runner: "ci", Namespace: "shop", Build: &runnerapi.BuildSpec{BuildTemplate: runnerapi.BuildTemplate{Image: "registry.example.com/shop/web"}}})
	require.NoError(t, err, "what is built is signed later")
	assert.Equal(t, "shop", rule)
}

func TestImageSigners_OfObjects(t *testing.T) {
	doc, err := policy.Parse([]byte(signedRules))
	require.NoError(t, err)
	p := policy.New("a test")
	p.Set(doc, nil)
	var asked []imagesignature.Request
	p.SetImages(func(r imagesignature.Request) error { asked = append(asked, r); return nil })
	var content map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {
  imagePullSecrets: [{name: pull}], containers: [{name: a, image: "registry.example.com/shop/web@`+signedDigest+`"}], initContainers: [{name: b, image: "registry.example.com/shop/tool:2"}]}}}}`), &content))
	o, err := input.Object(&unstructured.Unstructured{Object: content})
	require.NoError(t, err)
	err = p.Decide(runnerapi.Intent{Command: policy.ApplyManifests, Access: runnerapi.Named, Runner: "ci", Namespace: "shop", Objects: []runnerapi.ObjectIntent{o}})
	require.ErrorContains(t, err, `demands signed images by their digest, and "registry.example.com/shop/tool:2" names none`)
	require.Len(t, asked, 1)
	assert.Equal(t, []string{"pull"}, asked[0].PullSecrets)
}

// TestImageSigners_Keyless: identities count beside keys.
func TestImageSigners_Keyless(t *testing.T) {
	doc, err := policy.Parse([]byte(signedRules + `
    keyless:
    - {identity: ann@example.com, issuer: "https://accounts.example.com"}
    - {identityRegexp: "https://github.com/acme/.*", issuer: "https://token.actions.githubusercontent.com"}
`))
	require.NoError(t, err)
	require.Len(t, doc.Summary(), 1)
	assert.Contains(t, doc.Summary()[0], `, keyless identity "ann@example.com" of issuer https://accounts.example.com, keyless identities like "https://github.com/acme/.*" of issuer`)
	p := policy.New("a test")
	p.Set(doc, nil)
	var asked []imagesignature.Request
	p.SetImages(func(r imagesignature.Request) error { asked = append(asked, r); return nil })
	app := runnerapi.AppSpec{Image: "registry.example.com/shop/web@" + signedDigest}
	require.NoError(t, p.Decide(runnerapi.Intent{Command: "put-app", Access: runnerapi.Writes, Runner: "ci", Namespace: "shop", Name: "web", App: &app}))
	require.Len(t, asked, 1)
	assert.Len(t, asked[0].Signers, 3)
}

func TestImageSigners_Mistakes(t *testing.T) {
	for text, says := range map[string]string{
		"imageSigners: []": "imageSigners: has to have 1 to 16 entries",
		"imageSigners: [{images: [registry.example.com], keys: []}]":                                 "imageSigners[0]: has to have 1 to 16 keys (public keys), or 1 to 16 keyless (identity and issuer)",
		"imageSigners: [{keyless: []}]":                                                              "imageSigners[0]: has to have 1 to 16 keys",
		"imageSigners: [{keyless: [{issuer: 'https://a.example'}]}]":                                 "imageSigners[0].keyless[0].identity: or identityRegexp: set one of them",
		"imageSigners: [{keyless: [{identity: a}]}]":                                                 "imageSigners[0].keyless[0].issuer: has to be the https URL",
		"imageSigners: [{keyless: [{identityRegexp: '(', issuer: 'https://a.example'}]}]":            "imageSigners[0].keyless[0].identityRegexp: is not a regular expression",
		"imageSigners: [{keyless: [{identity: a, issuer: 'https://a.example'}], trustedRoot: '{}'}]": "imageSigners[0].trustedRoot: is not a trusted_root.json",
		"imageSigners: [{keys: [x], trustedRoot: '{}'}]":                                             "imageSigners[0].trustedRoot: is for keyless",
		"imageSigners: [{images: [web], keys: [x]}]":                                                 "imageSigners[0].images[0]: \"web\" does not begin with a registry",
		"imageSigners: [{images: [], keys: [x]}]":                                                    "imageSigners[0].images: is about no image",
		"imageSigners: [{keys: [x]}]":                                                                "imageSigners[0].keys[0]: is not one public key in PEM",
		"deny: true\n  imageSigners: [{keys: [\"" + "-----BEGIN\"]}]":                                "deny: a rule that denies takes no images",
	} {
		_, err := policy.Parse([]byte("rules:\n- name: a\n  " + text + "\n"))
		require.Error(t, err, text)
		known := &problem.Error{}
		require.ErrorAs(t, err, &known)
		all := known.Field + ": " + known.Detail
		for _, f := range known.Fields {
			all += "\n" + f.Field + ": " + f.Message
		}
		assert.Contains(t, all, says, text)
	}
	text, _, err := policy.WithRule([]byte(signedRules), "", policy.Rule{Name: "shop", Commands: []string{"*", policy.ApplyManifests}})
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(text), "BEGIN PUBLIC KEY"), "the owner's bounds stay: %s", text)
}
