package attackers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/forgetest"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// pulls has what is beyond those of a repository: what a preview alone must withstand.
func pulls() []repo {
	object := func(text string) map[string]string { return map[string]string{"a.yaml": text} }
	return []repo{
		{name: "the source's own namespace", tries: "change what runs, before it is merged", says: "its own namespace",
			files: object("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good-source, namespace: production}\ndata: {a: evil}\n")},
		{name: "another preview's namespace", tries: "change another preview", says: "its own namespace",
			files: object("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: " + runnerapi.PreviewNamespace(pullsSource, 1) + "}\n")},
		{name: "a namespace", tries: "make what outlives the request", files: object("apiVersion: v1\nkind: Namespace\nmetadata: {name: worse}\n")},
		{name: "its own quota", tries: "take more than its share", says: "policy",
			files: object("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: pipeops-quota}\nspec: {hard: {pods: \"1000\"}}\n")},
		{name: "the Git credentials of the source", tries: "follow with a Secret that is another namespace's", says: "the agent's own",
			files: object("apiVersion: pipeops.io/v1alpha1\nkind: Source\nmetadata: {name: worse}\nspec: {url: 'https://git.example.com/a/b.git', type: manifests, credentials: pulls-login}\n")},
	}
}

// previewPrefix begins the names of the namespaces of its previews.
const previewPrefix = "production-pulls-"

var pullsSource = runnerapi.Key{Namespace: production, Name: "pulls"}

// TestSource_HostilePullRequest has people who may open requests, and not deploy, try what a
// hostile repository does. A fork's request is never deployed.
func TestSource_HostilePullRequest(t *testing.T) {
	setPolicy(t, strings.Replace(repositories, "apply-manifests]", "apply-manifests, approve-preview]", 1))
	_, err := sys.Cluster.Kubectl(t.Context(), "apply", "--server-side", "-f", "../../../deployments/sources.yaml")
	require.NoError(t, err)
	git, c := startGit(t), newCaller(t, honest)
	gitLogin(t, git, "pulls-login")
	forge := forgetest.StartAt(t, sys.HostIP(), "team/pulls", "the-token-of-the-forge")
	path := "/v1/namespaces/production/sources/pulls"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "forge"}, Data: forge.Secret(t, git.url)}
	require.NoError(t, sys.Kube.Create(t.Context(), secret))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		gone := c.call(ctx, http.MethodDelete, path, nil, nil)
		assert.Less(t, gone.status, 300, "%v", gone)
		assert.NoError(t, harness.Eventually(ctx, "its previews are gone, which the next scene would miss", noPreviews))
		for _, name := range []string{"forge", "pulls-login"} {
			assert.NoError(t, sys.Kube.Clientset.CoreV1().Secrets(production).Delete(context.Background(), name, metav1.DeleteOptions{}))
		}
	})
	repository := git.Create(t, "team/pulls")
	repository.Commit(map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good-source}\ndata: {a: b}\n"})
	put := c.call(t.Context(), http.MethodPut, path, map[string]any{
		"url": git.url + "/pulls", "type": "manifests", "credentials": "pulls-login", "interval": "30s", "previews": map[string]any{"limit": 50},
		"report": map[string]any{"forge": "github", "credentials": "forge", "api": forge.HTTPS.URL + forgetest.GitHub},
	}, nil)
	require.Less(t, put.status, 300, "%v", put)
	number := int64(0)
	request := func(t *testing.T, files map[string]string, fork bool) runnerapi.SourcePreview {
		t.Helper()
		if number++; number > 2 { // the first stays
			forge.Close(number - 1)
		}
		forge.Open(forgetest.Pull{Number: number, Branch: "worse", Commit: repository.Branch("worse", files), Fork: fork})
		return seen(t, c, path, number)
	}
	s := open(t, func() {
		request(t, map[string]string{"b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"}, false)
	})
	all := slices.DeleteFunc(append(repos(git), pulls()...), func(r repo) bool {
		return r.files == nil || r.kind != "" || r.brings || r.more != nil
	})
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			got := request(t, r.files, false)
			if assert.NotNil(t, got.SourceError, "it tries: %s", r.tries) {
				assert.Contains(t, got.SourceError.Message, r.says)
			}
		})
	}
	t.Run("a fork", func(t *testing.T) {
		got := request(t, map[string]string{"b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"}, true)
		assert.Equal(t, runnerapi.PreviewNeedsApproval, got.State)
		assert.Empty(t, got.Namespace)
	})
	t.Run("the source of a preview, by a Runner", func(t *testing.T) {
		got := c.call(t.Context(), http.MethodPut, "/v1/namespaces/production/sources/worse", map[string]any{
			"url": git.url + "/pulls", "type": "manifests", "credentials": "pulls-login",
			"previewOf": map[string]any{"namespace": "payroll", "source": "pulls", "number": 1},
		}, nil)
		assert.Equal(t, http.StatusUnprocessableEntity, got.status, "%v", got)
	})
	first := runnerapi.PreviewNamespace(pullsSource, 1)
	await.Until(t, "only the first preview is left", func() bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(managedNamespaces(t))), func(name string) bool {
			return strings.HasPrefix(name, previewPrefix) && name != first
		})
	})
	s.close()
}

func noPreviews(ctx context.Context) error {
	all, err := sys.Kube.Clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		if name := all.Items[i].Name; strings.HasPrefix(name, previewPrefix) {
			return fmt.Errorf("namespace %s is there", name)
		}
	}
	return nil
}

// seen waits until the agent has decided on a request.
func seen(t *testing.T, c *caller, path string, number int64) (found runnerapi.SourcePreview) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c.call(ctx, http.MethodPost, path+"/sync", nil, nil)
	require.NoError(t, harness.Eventually(ctx, "the request is seen", func(ctx context.Context) error {
		got := c.call(ctx, http.MethodGet, path+"/previews", nil, nil)
		text, _, _ := bytes.Cut(got.body, []byte("\nmap["))
		var list runnerapi.SourcePreviewList
		if err := json.Unmarshal(text, &list); err != nil {
			return fmt.Errorf("%w: %v", err, got)
		}
		i := slices.IndexFunc(list.Items, func(p runnerapi.SourcePreview) bool { return p.Number == number })
		if i < 0 {
			return fmt.Errorf("it is not in the list: %+v", list)
		}
		if found = list.Items[i]; found.State == runnerapi.PreviewActive && !found.Phase.Settled() || found.Phase == "" && found.State == runnerapi.PreviewActive {
			return fmt.Errorf("it is %s", found.Phase)
		}
		return nil
	}))
	return found
}
