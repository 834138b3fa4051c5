package failures

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// Images are those that the failures are made of.
type Images struct {
	Hello   string // test/apps/hello
	Root    string // the same as root
	Named   string // the same as a user without a number
	Foreign string // the same for machines of another architecture
	Odd     string // the same with garbage, which is executable, and plain, which is not
}

// LoadImages puts them into the cluster.
func LoadImages(t *testing.T, env *kubetest.Env) Images {
	t.Helper()
	hello, err := env.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	img, err := cluster.BuildProgram(t.Context(), cluster.Program{Package: "./test/apps/hello"})
	require.NoError(t, err)
	images := Images{
		Hello: hello, Root: "apps.test/root:1", Named: "apps.test/named:1", Foreign: "apps.test/foreign:1", Odd: "apps.test/odd:1",
	}
	load := func(ref string, img v1.Image) { require.NoError(t, env.Cluster.LoadImage(t.Context(), ref, img)) }
	load(images.Root, asUser(t, img, "0"))
	load(images.Named, asUser(t, img, "app"))
	load(images.Odd, withFiles(t, img))
	platform := v1.Platform{OS: "linux", Architecture: "s390x"}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &platform}})
	require.NoError(t, env.Cluster.LoadIndex(t.Context(), images.Foreign, index))
	return images
}

func asUser(t *testing.T, img v1.Image, user string) v1.Image {
	t.Helper()
	file, err := img.ConfigFile()
	require.NoError(t, err)
	config := file.Config
	config.User = user
	img, err = mutate.Config(img, config)
	require.NoError(t, err)
	return img
}

func withFiles(t *testing.T, img v1.Image) v1.Image {
	t.Helper()
	const text = "this is not a program\n"
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, mode := range map[string]int64{"garbage": 0o755, "plain": 0o644} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil })
	require.NoError(t, err)
	img, err = mutate.AppendLayers(img, layer)
	require.NoError(t, err)
	return img
}
