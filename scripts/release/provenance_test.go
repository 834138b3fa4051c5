package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

const testCommit = "0123456789abcdef0123456789abcdef01234567"

// provenanceOf makes a release in which this test is the agent, without compiling, and reads its
// provenance with in-toto's and SLSA's own types, which refuse unknown fields.
func provenanceOf(t *testing.T, commit string) (dir string, s *intoto.Statement, p *slsa.Provenance) {
	t.Helper()
	platform := v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	r := release{version: "v1.2.3", commit: commit, staging: t.TempDir(), out: io.Discard, controlPlane: "https://cp.example.com",
		programs: []program{{name: "pipeops-agent", updates: true}}, platforms: []v1.Platform{platform}, expires: stamp.Add(validity)}
	r.manifest = published.Manifest{Version: r.version, Commit: r.commit, Expires: r.expires,
		Images: []published.Image{{Name: agentImage, Digest: "sha256:" + strings.Repeat("a", 64)}}}
	require.NoError(t, os.MkdirAll(r.publish(), 0o700))
	require.NoError(t, r.keys(testKey, "", ""))
	require.NoError(t, os.MkdirAll(filepath.Dir(r.bin(r.programs[0], platform)), 0o700))
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Link(self, r.bin(r.programs[0], platform)))
	require.NoError(t, r.bare(t.Context()))
	require.NoError(t, r.versionFile(t.Context()))
	require.NoError(t, attester{&r}.run(t.Context()))
	require.NoError(t, r.prove(t.Context()))
	s, p = readProvenance(t, r.publish())
	return r.publish(), s, p
}

// readProvenance checks that the signed manifest lists the provenance, and that it is valid.
func readProvenance(t *testing.T, dir string) (*intoto.Statement, *slsa.Provenance) {
	t.Helper()
	m, err := published.Decode(read(t, dir, published.ManifestName))
	require.NoError(t, err)
	file, found := m.File(published.KindProvenance, "", "")
	require.True(t, found)
	content := read(t, dir, file.Name)
	assert.Equal(t, file.SHA256, fmt.Sprintf("%x", sha256.Sum256(content)))
	s := &intoto.Statement{}
	require.NoError(t, protojson.Unmarshal(content, s))
	require.NoError(t, s.Validate())
	assert.Equal(t, "https://slsa.dev/provenance/v1", s.GetPredicateType())
	predicate, err := protojson.Marshal(s.GetPredicate())
	require.NoError(t, err)
	p := &slsa.Provenance{}
	require.NoError(t, protojson.Unmarshal(predicate, p))
	require.NoError(t, p.Validate())
	return s, p
}

// subjectsAreTheFiles compares the digests with the files, of which none may be missing.
func subjectsAreTheFiles(t *testing.T, dir string, s *intoto.Statement) {
	t.Helper()
	m, err := published.Decode(read(t, dir, published.ManifestName))
	require.NoError(t, err)
	digests := map[string]string{}
	for _, subject := range s.GetSubject() {
		assert.NotContains(t, digests, subject.GetName())
		digests[subject.GetName()] = subject.GetDigest()["sha256"]
	}
	for _, f := range m.Files {
		if f.Kind != published.KindProvenance {
			assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(read(t, dir, f.Name))), digests[f.Name], f.Name)
		}
	}
	for _, i := range m.Images {
		assert.Equal(t, i.Digest, "sha256:"+digests[i.Name])
	}
	assert.Len(t, digests, len(m.Files)-1+len(m.Images))
}

func TestProvenance(t *testing.T) {
	dir, s, p := provenanceOf(t, testCommit)
	subjectsAreTheFiles(t, dir, s)
	parameters := p.GetBuildDefinition().GetExternalParameters().AsMap()
	assert.Equal(t, "git+https://github.com/pipeops/pipeops-vm-agent@refs/tags/v1.2.3", parameters["source"])
	assert.Equal(t, testCommit, parameters["commit"])
	assert.Equal(t, []any{testPublic}, parameters["releaseKeys"])
	assert.Equal(t, []any{runtime.GOOS + "/" + runtime.GOARCH}, parameters["platforms"])
	assert.Equal(t, "https://cp.example.com", parameters["controlPlaneUrl"])
	internal := p.GetBuildDefinition().GetInternalParameters().AsMap()
	assert.Equal(t, runtime.Version(), internal["goVersion"])
	assert.Equal(t, "scratch", internal["imageBase"])
	assert.Contains(t, internal["goFlags"], "-trimpath")
	assert.Equal(t, runtime.Version(), p.GetRunDetails().GetBuilder().GetVersion()["go"])

	dependencies := map[string]map[string]string{}
	for _, d := range p.GetBuildDefinition().GetResolvedDependencies() {
		dependencies[d.GetUri()] = d.GetDigest()
	}
	assert.Equal(t, testCommit, dependencies["git+https://github.com/pipeops/pipeops-vm-agent@refs/tags/v1.2.3"]["gitCommit"])
	assert.Contains(t, dependencies, "pkg:golang/std@"+strings.TrimPrefix(runtime.Version(), "go"))
	modules := 0
	for uri, digest := range dependencies {
		if strings.HasPrefix(uri, "pkg:golang/github.com/spf13/cobra@") || strings.HasPrefix(uri, "pkg:golang/"+rootsModule+"@") {
			assert.Len(t, digest["dirHash"], 64, uri)
			modules++
		}
	}
	assert.Equal(t, 2, modules, "a module of the program, and the one of the images' CAs")
}

func TestProvenance_Reproducible(t *testing.T) {
	first, _, _ := provenanceOf(t, testCommit)
	second, _, _ := provenanceOf(t, testCommit)
	assert.Equal(t, read(t, first, "pipeops_1.2.3.provenance.json"), read(t, second, "pipeops_1.2.3.provenance.json"))
}

func TestProvenance_FullCommit(t *testing.T) {
	require.NoError(t, checkCommit(testCommit))
	for _, commit := range []string{"none", testCommit[:12], strings.ToUpper(testCommit), "refs/heads/main"} {
		require.ErrorContains(t, checkCommit(commit), "--commit: "+commit+" is not a full commit ID")
	}
	_, s, _ := provenanceOf(t, "none") // an unsigned build of a copy without git
	assert.NotEmpty(t, s.GetSubject())
}

func TestModuleResource(t *testing.T) {
	m := &debug.Module{Path: "example.com/m", Version: "v1.0.0", Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}
	found, err := moduleResource(m)
	require.NoError(t, err)
	content, err := json.Marshal(found)
	require.NoError(t, err)
	assert.JSONEq(t, `{"uri": "pkg:golang/example.com/m@v1.0.0", "digest": {"dirHash": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}}`, string(content))
	m.Sum = ""
	found, err = moduleResource(m)
	require.NoError(t, err)
	assert.Empty(t, found.Digest)
	m.Sum = "h1:?"
	_, err = moduleResource(m)
	require.ErrorContains(t, err, "example.com/m")
	assert.False(t, bytes.Contains(content, []byte("h1:")))
}
