package appfile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestRead(t *testing.T) {
	file, err := appfile.Read([]byte("image: a\nreplicas: 2\n"))
	require.NoError(t, err)
	assert.Equal(t, appfile.File{Spec: runnerapi.AppSpec{Image: "a", Replicas: new(int32(2))}}, file)

	file, err = appfile.Read([]byte("apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: web, namespace: shop, labels: {a: b}}\nspec: {image: a}\n"))
	require.NoError(t, err)
	assert.Equal(t, appfile.File{Namespace: "shop", Name: "web", Spec: runnerapi.AppSpec{Image: "a"}}, file)
}

func TestRead_NamesMistakes(t *testing.T) {
	for text, says := range map[string]string{
		"- a\n":                            "is not an object",
		"apiVersion: apps/v1\nkind: Pod\n": `is a "Pod" of "apps/v1", not an App of pipeops.io/v1alpha1`,
		"imge: a\n":                        `unknown field "imge"`,
		"image: 1\n":                       "image: is a number, but has to be a text; put it in quotes",
		"image: a\nimage: b\n":             `line 2: the key "image" is there twice`,
		"image: a\n---\nimage: b\n":        "a second document begins",
	} {
		_, err := appfile.Read([]byte(text))
		require.ErrorContains(t, err, says, text)
	}
}

// TestRead_RefusesYAMLBomb, such as one in the App of a source.
func TestRead_RefusesYAMLBomb(t *testing.T) {
	text := "image: &a " + strings.Repeat("x", 4<<10) + "\nargs: [" + strings.Repeat("*a,", 1300) + "*a]\n"
	require.Less(t, len(text), 9<<10)
	_, err := appfile.Read([]byte(text))
	require.ErrorContains(t, err, "aliases (*NAME) stand for more than")
	assert.True(t, decode.Exceeded(err))
	require.Error(t, appfile.Decode([]byte(text), &runnerapi.JobSpec{}))
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("image: a\nreplicas: 2\n"))
	f.Add([]byte("apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: web}\nspec: {image: a}\n"))
	f.Add([]byte("---\nimage: a\n---\nimage: b\n"))
	f.Add([]byte(`{"image":"a","image":"b"}`))
	f.Add([]byte("jobs:\n  - {name: a, image: b}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if len(text) > 4096 {
			return
		}
		if file, err := appfile.Read(text); err == nil {
			_ = file.Spec.Validate() // takes whatever was decoded
		}
		_ = appfile.Decode(text, &runnerapi.JobSpec{})
		_ = appfile.Decode(text, &runnerapi.PipelineSpec{})
	})
}
