package pressure

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/helm/stored"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
)

// production is the managed namespace of test/kubetest/production.yaml, where all but Apps is.
const production = "production"

// most is how many objects of one kind there are at most.
const most = 200

// fillApps deploys Apps of some 900 KiB in several namespaces until the agent takes no more, and
// returns how many there are.
func fillApps(t *testing.T, c *client.Client) (apps int) {
	t.Helper()
	spec := runnerapi.AppSpec{Image: "registry.example.com/web:1", Replicas: new(int32(0))}
	for i := range 28 {
		spec.Env = append(spec.Env, runnerapi.EnvVar{Name: fmt.Sprintf("V%d", i), Value: strings.Repeat("x", 32<<10)})
	}
	for n := 0; apps < most; n++ {
		namespace, before := fmt.Sprintf("pressure-%d", n), apps
		_, err := c.Namespaces().Set(t.Context(), namespace, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
		require.NoError(t, err)
		for ; apps < most; apps++ {
			_, err := c.Apps().Deploy(t.Context(), runnerapi.Key{Namespace: namespace, Name: fmt.Sprintf("web-%d", apps)}, spec, runnerapi.WriteOptions{})
			if problem.Is(err, problem.TooLarge) {
				break
			}
			require.NoError(t, err)
		}
		if apps == before {
			return apps
		}
	}
	return apps
}

// packed returns a text as Helm stores it.
func packed(t *testing.T, text io.Reader) []byte {
	t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := io.Copy(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return base64.StdEncoding.AppendEncode(nil, zipped.Bytes())
}

// fillReleases stores releases that anyone with Secrets could store: of the largest size with the
// most values, and one that unpacks to four times that.
func fillReleases(t *testing.T, releases int) {
	t.Helper()
	const head = `{"name":"%s","namespace":"production","version":1,"info":{"status":"deployed"},"chart":{"metadata":{"name":"web","version":"1.0.0"}},"config":{"a":["",`
	for n := range releases {
		name := fmt.Sprintf("hostile-%d", n)
		text := fmt.Sprintf(head, name) + strings.Repeat(`"",`, 249_000) + `""]},"manifest":"`
		size := stored.MaxRelease - len(text) - 2
		if n == 0 {
			size *= 4
		}
		_, err := sys.Kube.Clientset.CoreV1().Secrets(production).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: stored.Key(name, 1), Labels: map[string]string{"owner": "helm", "name": name, "version": "1", "status": "deployed"}},
			Type:       stored.Type,
			Data:       map[string][]byte{"release": packed(t, strings.NewReader(text+strings.Repeat(" ", size)+`"}`))},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// largestSet returns as many manifests, and bytes, as one call takes.
func largestSet() []byte {
	var text bytes.Buffer
	const objects = 990
	filler := strings.Repeat("x", (runnerapi.MaxManifestsBody-64<<10)/objects-200)
	for n := range objects {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {a: %s}\n", n, filler)
	}
	return text.Bytes()
}

// mostValues returns a manifest with as many values as one call takes.
func mostValues() []byte {
	return []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nx: [" + strings.Repeat("x,", 99_900) + "x]\n")
}

// repository is a Git repository with a chart and as many files as a source may have.
type repository struct{ *gitserver.Repository }

// follow has the agent follow such a repository.
func follow(t *testing.T, c *client.Client) repository {
	t.Helper()
	server := gitserver.Start(t, "", "")
	ssh := server.StartSSHAt(t, sys.HostIP())
	r := repository{server.Create(t, "shop/deploy.git")}
	r.commit(0)
	_, err := c.Secrets().Set(t.Context(), runnerapi.Key{Namespace: production, Name: "deploy"}, runnerapi.SecretSpec{Data: map[string]string{
		"url": ssh.URL(""), "identity": string(ssh.Identity), "known_hosts": string(ssh.KnownHosts),
	}}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = c.Sources().Set(t.Context(), runnerapi.Key{Namespace: production, Name: "deploy"}, runnerapi.SourceSpec{
		URL: ssh.URL("shop/deploy.git"), Type: runnerapi.SourceKustomize, Interval: "30s", Credentials: "deploy",
	}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	return r
}

// commit makes a commit that is new to the agent.
func (r repository) commit(n int) {
	files := map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\n",
		"a.yaml":             fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: followed}\ndata: {n: %q}\n", fmt.Sprint(n)),
	}
	for i := range 22 {
		files[fmt.Sprintf("files/%d.txt", i)] = strings.Repeat(fmt.Sprintf("%d of %d\n", n, i), 100_000)
	}
	r.Commit(files)
}
