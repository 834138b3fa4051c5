package stored_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/helm/stored"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const namespace = "production"

// secret is a Secret that Helm could have made of a revision, packed.
func secret(t *testing.T, name string, version int, revision io.Reader) *corev1.Secret {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	_, err := io.Copy(zipped, revision)
	require.NoError(t, err)
	require.NoError(t, zipped.Close())
	text := []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))
	require.Less(t, len(text), 1<<20, "Kubernetes keeps no larger Secret")
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: stored.Key(name, version), Labels: map[string]string{
			"owner": "helm", "name": name, "version": strconv.Itoa(version), "status": "superseded",
		}},
		Type: stored.Type, Data: map[string][]byte{"release": text},
	}
}

func driverOf(t *testing.T, secrets ...*corev1.Secret) (*stored.Driver, *fake.Clientset, metadata.Interface) {
	t.Helper()
	var whole, outlines []kruntime.Object
	for _, s := range secrets {
		whole = append(whole, s)
		outlines = append(outlines, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: s.ObjectMeta,
		})
	}
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	core, meta := fake.NewClientset(whole...), metadatafake.NewSimpleMetadataClient(scheme, outlines...)
	return stored.New(meta, core.CoreV1(), namespace, slog.DiscardHandler, nil), core, meta
}

// allocated is how many bytes do allocates, those that are free again included.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// spaces is a text of them without an end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// repeated is a text that stands there so many times.
func repeated(text string, times int) io.Reader {
	return strings.NewReader(strings.Repeat(text, times))
}

func TestDriver_RefusesReleasesThatTakeTooMuchMemory(t *testing.T) {
	var got []*corev1.Secret
	cases := map[string]struct {
		of   io.Reader
		says string
	}{
		"bomb":   {io.MultiReader(strings.NewReader(`{"manifest":"`), io.LimitReader(spaces{}, 128<<20), strings.NewReader(`"}`)), "more than 16 MiB"},
		"values": {io.MultiReader(strings.NewReader(`{"config":{"a":[`), repeated("[],", 5<<20), strings.NewReader(`0]}}`)), "more than 250000"},
		"nested": {repeated("[", 100_000), "more than 200 deep"},
	}
	for name, c := range cases {
		got = append(got, secret(t, name, 1, c.of))
	}
	d, _, _ := driverOf(t, got...)
	releases := storage.Init(d)
	for name, c := range cases {
		for how, read := range map[string]func() error{
			"one":     func() error { _, err := releases.Get(name, 1); return err },
			"last":    func() error { _, err := releases.Last(name); return err },
			"history": func() error { _, err := releases.History(name); return err },
		} {
			var err error
			used := allocated(func() { err = read() })
			t.Logf("%s, %s: %d KiB: %v", name, how, used>>10, err)
			p := &problem.Error{}
			require.ErrorAs(t, err, &p, "%s, %s", name, how)
			assert.Equal(t, problem.TooLarge, p.Code)
			assert.Contains(t, p.Detail, c.says)
			assert.Contains(t, p.Fix, "delete secret -n production sh.helm.release.v1."+name+".v1")
			assert.Less(t, used, uint64(stored.MaxRelease+4<<20), "%s, %s", name, how)
		}
		_, err := releases.Delete(name, 1)
		require.NoError(t, err, "it can be removed without being read")
	}
}

func TestDriver_RefusesToStoreWhatItWouldNotRead(t *testing.T) {
	d, core, _ := driverOf(t)
	err := storage.Init(d).Create(&release.Release{Name: "big", Version: 1, Info: &release.Info{}, Manifest: strings.Repeat("a", stored.MaxRelease)})
	p := &problem.Error{}
	require.ErrorAs(t, err, &p)
	assert.Equal(t, problem.TooLarge, p.Code)
	_, err = core.CoreV1().Secrets(namespace).Get(t.Context(), stored.Key("big", 1), metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}

// TestDriver_HistoryReadsNewestOnly: Helm asks for the history in each command.
func TestDriver_HistoryReadsNewestOnly(t *testing.T) {
	var got []*corev1.Secret
	for version := 1; version <= 5; version++ {
		revision := `{"name":"web","version":` + strconv.Itoa(version) + `,"info":{"status":"superseded"},"manifest":"a: b"}`
		got = append(got, secret(t, "web", version, strings.NewReader(revision)))
	}
	got[1].Data = nil // nothing of an older one is read
	d, core, _ := driverOf(t, got...)
	history, err := storage.Init(d).History("web")
	require.NoError(t, err)
	require.Len(t, history, 5)
	reads := 0
	for _, a := range core.Actions() {
		if a.Matches("get", "secrets") || a.Matches("list", "secrets") {
			reads++
		}
	}
	assert.Equal(t, 1, reads)
	for _, r := range history {
		one, ok := r.(*release.Release)
		require.True(t, ok)
		assert.Equal(t, common.StatusSuperseded, one.Info.Status)
		assert.Equal(t, one.Version == 5, one.Manifest != "", "version %d", one.Version)
	}
	last, err := storage.Init(d).Last("web")
	require.NoError(t, err)
	assert.Equal(t, "a: b", last.(*release.Release).Manifest)
}

// TestDriver_BoundsWhatOneQueryHolds: anyone who can write Secrets in a namespace can label many
// revisions as deployed, and Helm's actions hold all of them at the same time.
func TestDriver_BoundsWhatOneQueryHolds(t *testing.T) {
	var got []*corev1.Secret
	for version := range 40 {
		s := secret(t, "web", version+1, io.MultiReader(strings.NewReader(`{"name":"web","info":{"status":"deployed"},"manifest":"`),
			io.LimitReader(spaces{}, 8<<20), strings.NewReader(`"}`)))
		s.Labels["status"] = "deployed"
		got = append(got, s)
	}
	d, core, _ := driverOf(t, got...)
	for how, read := range map[string]func() error{
		"deployed": func() error { _, err := storage.Init(d).DeployedAll("web"); return err },
		"list":     func() error { _, err := storage.Init(d).ListReleases(); return err },
	} {
		core.ClearActions()
		p := &problem.Error{}
		require.ErrorAs(t, read(), &p, how)
		assert.Equal(t, problem.TooLarge, p.Code, how)
		assert.Contains(t, p.Fix, "delete secret -n production sh.helm.release.v1.web.v", how)
		assert.LessOrEqual(t, len(core.Actions()), 6, how)
	}
	_, err := storage.Init(d).Get("web", 7)
	require.NoError(t, err, "one by one they can be read")
}

func TestFind_TakesHelmsNamesOnly(t *testing.T) {
	ours := secret(t, "web", 3, strings.NewReader("{}"))
	named := ours.DeepCopy()
	named.Name = "something"
	other := secret(t, "web", 4, strings.NewReader("{}"))
	other.Labels["version"] = "5"
	unnamed := secret(t, "web", 6, strings.NewReader("{}"))
	delete(unnamed.Labels, "name")
	_, _, meta := driverOf(t, ours, named, other, unnamed)
	found, err := stored.Find(context.Background(), meta, namespace, nil)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "sh.helm.release.v1.web.v3", found[0].Name)
}
