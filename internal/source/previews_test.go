package source_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/forgetest"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// previewing is a place whose source web has previews, by a clock of its own.
type previewing struct {
	*reporting
	main string
}

const allowingPreviews = `
rules:
  - name: git
    commands: ["*", put-source, apply-manifests, approve-preview]
    kinds: [ConfigMap, Namespace]
`

// openPreviews is a place with a source that brings manifests, and requests of these numbers at
// most.
func openPreviews(t *testing.T, most int64, change ...func(*runnerapi.SourceSpec)) *previewing {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	env := kubetest.ControlPlane(t)
	p := &previewing{reporting: &reporting{
		place: openFor(t, env, nil, most, clock), clock: clock, forge: forgetest.Start(t, "shop/deploy", "hush"),
	}}
	p.stop()
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace, Log: zerolog.New(zerolog.NewTestWriter(t))})
	require.NoError(t, err)
	p.config.Previews = k.Namespaces()
	p.start()
	p.allow(allowingPreviews)
	p.secret("correct horse")
	p.token("hush")
	p.repo = p.git.Create(t, "shop/deploy.git")
	p.main = p.repo.Commit(map[string]string{"one.yaml": configMapFile("one", "main")})
	p.put("web", p.previews(change...))
	t.Cleanup(func() {
		p.clock.Step(time.Minute)
	})
	return p
}

func (p *previewing) previews(change ...func(*runnerapi.SourceSpec)) runnerapi.SourceSpec {
	spec := p.spec(runnerapi.SourceSpec{Type: runnerapi.SourceManifests})
	spec.Previews = &runnerapi.SourcePreviews{}
	for _, c := range change {
		c(&spec)
	}
	return spec
}

// open pushes a commit to a branch, and opens a request for it.
func (p *previewing) open(number int64, value string, labels ...string) (commit string) {
	p.t.Helper()
	branch := fmt.Sprintf("branch-%d", number)
	commit = p.repo.Branch(branch, map[string]string{"one.yaml": configMapFile("one", value)})
	p.forge.Open(forgetest.Pull{Number: number, Branch: branch, Commit: commit, Labels: labels})
	return commit
}

// until waits until the previews are as they are to be. It moves the clock.
func (p *previewing) until(what string, good func(map[int64]runnerapi.SourcePreview) bool) map[int64]runnerapi.SourcePreview {
	p.t.Helper()
	var all map[int64]runnerapi.SourcePreview
	await.Until(p.t, what, func() bool {
		p.clock.Step(5 * time.Second)
		list, err := p.keeper.Previews(p.t.Context(), p.key("web"))
		require.NoError(p.t, err)
		all = map[int64]runnerapi.SourcePreview{}
		for _, item := range list.Items {
			all[item.Number] = item
		}
		return good(all)
	})
	return all
}

// value returns what the ConfigMap of a preview has; empty if there is none.
func (p *previewing) value(number int64) string {
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: runnerapi.PreviewNamespace(p.key("web"), number), Name: "one"}
	if p.env.Client.Get(p.t.Context(), key, cm) != nil {
		return ""
	}
	return cm.Data["a"]
}

// namespaces returns the namespaces of previews that were not deleted. Nothing empties and removes
// those here.
func (p *previewing) namespaces() (names []string) {
	list := &corev1.NamespaceList{}
	require.NoError(p.t, p.env.Client.List(p.t.Context(), list))
	for _, ns := range list.Items {
		if ns.DeletionTimestamp == nil && ns.Annotations["pipeops.io/preview-of"] == p.key("web").String() {
			names = append(names, ns.Name)
		}
	}
	return names
}

func ready(number int64, commit string) func(map[int64]runnerapi.SourcePreview) bool {
	return func(all map[int64]runnerapi.SourcePreview) bool {
		return all[number].Commit == commit && all[number].Phase == runnerapi.SourceReady
	}
}

// TestPreviews_FollowRequests opens a request, pushes to it, and closes it.
func TestPreviews_FollowRequests(t *testing.T) {
	t.Parallel()
	p := openPreviews(t, 2, func(s *runnerapi.SourceSpec) { s.Previews.Comment = true })
	commit := p.open(1, "first")
	item := p.until("the request has a preview", ready(1, commit))[1]
	assert.Equal(t, runnerapi.PreviewActive, item.State)
	assert.Equal(t, "branch-1", item.Branch)
	await.Until(t, "its object is there", func() bool { return p.value(1) == "first" })
	main, err := p.configMap("one")
	require.NoError(t, err)
	assert.Equal(t, "main", main.Data["a"], "the source itself is as it was")
	quota := &corev1.ResourceQuotaList{}
	require.NoError(t, p.env.Client.List(t.Context(), quota, client.InNamespace(item.Namespace)))
	require.Len(t, quota.Items, 1)
	assert.Equal(t, "20", quota.Items[0].Spec.Hard.Pods().String())
	p.shows(commit, "success")
	assert.Equal(t, []forgetest.Comment{{Number: 1, Text: "Preview of " + commit + ": `ready: 1 objects in namespace " + item.Namespace + "`"}}, p.forge.Comments())

	next := p.open(1, "second")
	p.until("the preview follows", ready(1, next))
	await.Until(t, "its object follows", func() bool { return p.value(1) == "second" })
	await.Until(t, "the comment follows", func() bool {
		p.clock.Step(time.Second)
		all := p.forge.Comments()
		require.Len(t, all, 1)
		return assert.ObjectsAreEqual("Preview of "+next+": `ready: 1 objects in namespace "+item.Namespace+"`", all[0].Text)
	})

	again := runner
	again.Caller.RequestID = "again"
	_, err = p.keeper.Sync(t.Context(), p.key("web"), again)
	require.NoError(t, err)
	await.Until(t, "its preview is synced, too", func() bool {
		p.clock.Step(time.Second)
		child, err := p.keeper.Get(t.Context(), runnerapi.Key{Namespace: item.Namespace, Name: "web"})
		require.NoError(t, err)
		return child.Status.ObservedSync == "again"
	})

	deployed := func() (states []string) {
		for _, sent := range p.forge.Sent() {
			if sent.Deployment != 0 && sent.Commit == next {
				states = append(states, sent.State)
			}
		}
		return states
	}
	await.Until(t, "it is reported", func() bool {
		p.clock.Step(time.Second)
		return slices.Contains(deployed(), "success")
	})
	p.forge.Close(1)
	p.until("the list is empty", func(all map[int64]runnerapi.SourcePreview) bool { return len(all) == 0 })
	await.Until(t, "the namespace is gone", func() bool { return len(p.namespaces()) == 0 })
	assert.Equal(t, "inactive", deployed()[len(deployed())-1])
	commands := map[string]int{}
	for _, r := range p.audited.all() {
		if r.Namespace == item.Namespace { // a sweep may have found what another test left
			commands[r.Command]++
		}
	}
	assert.Equal(t, 1, commands["put-namespace"])
	assert.Equal(t, 1, commands["delete-namespace"])

	p.open(1, "third")
	all := p.until("there is none while the namespace is being deleted", func(all map[int64]runnerapi.SourcePreview) bool {
		return all[1].State == runnerapi.PreviewFailed
	})
	assert.Equal(t, string(problem.Busy), all[1].Error.Code)
	second := p.open(2, "fourth")
	p.until("another one has its own", ready(2, second))
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
	await.Until(t, "with the source, its previews go", func() bool {
		p.clock.Step(time.Second)
		return len(p.namespaces()) == 0
	})
}

// TestPreviews_Choice has more requests than previews, labels, and an expiry.
func TestPreviews_Choice(t *testing.T) {
	t.Parallel()
	p := openPreviews(t, 5, func(s *runnerapi.SourceSpec) {
		s.Previews.Label, s.Previews.Limit, s.Previews.ExpireAfter = "preview", 2, "1h"
	})
	first := p.open(1, "one", "preview")
	p.open(2, "two")
	p.until("the first is there", ready(1, first))
	third := p.open(3, "three", "bug", "preview")
	p.until("the third is there", ready(3, third))
	fourth := p.open(4, "four", "preview")
	all := p.until("the fourth is there", ready(4, fourth))
	assert.Equal(t, runnerapi.PreviewOverLimit, all[1].State, "its commit is the oldest")
	assert.NotContains(t, all, int64(2), "it has no such label")
	await.Until(t, "only two are left", func() bool { return len(p.namespaces()) == 2 })

	p.clock.Step(time.Hour)
	p.until("they have expired", func(all map[int64]runnerapi.SourcePreview) bool {
		return all[3].State == runnerapi.PreviewExpired && all[4].State == runnerapi.PreviewExpired
	})
	await.Until(t, "none is left", func() bool { return len(p.namespaces()) == 0 })
	newer := p.open(5, "five", "preview")
	p.until("another one is there", ready(5, newer))
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
}

// TestPreviews_Forks: what others push runs only once its commit was approved, and gets no Secret.
func TestPreviews_Forks(t *testing.T) {
	t.Parallel()
	p := openPreviews(t, 2, func(s *runnerapi.SourceSpec) { s.Previews.Secrets = []string{"database"} })
	require.NoError(t, p.env.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "database"}, StringData: map[string]string{"password": "for previews"},
	}))
	own, fork := p.open(1, "mine"), p.repo.Branch("fork", map[string]string{"one.yaml": configMapFile("one", "theirs")})
	p.forge.Open(forgetest.Pull{Number: 2, Branch: "patch-1", Commit: fork, Fork: true})
	p.until("one's own is there, and the other waits", func(all map[int64]runnerapi.SourcePreview) bool {
		return ready(1, own)(all) && all[2].State == runnerapi.PreviewNeedsApproval
	})
	assert.Len(t, p.namespaces(), 1)

	approve := func(number int64, commit string) error {
		_, err := p.keeper.ApprovePreview(t.Context(), p.key("web"), number, runnerapi.CommitApproval{Commit: commit}, runner)
		return err
	}
	assert.True(t, problem.Is(approve(2, own), problem.Conflict), "it is not the request's commit")
	assert.True(t, problem.Is(approve(1, own), problem.Conflict), "it needs no approval")
	assert.True(t, problem.Is(approve(3, own), problem.NotFound))
	require.NoError(t, approve(2, fork))
	p.until("the fork's is there", ready(2, fork))
	secretOf := func(number int64) error {
		key := client.ObjectKey{Namespace: runnerapi.PreviewNamespace(p.key("web"), number), Name: "database"}
		return p.env.Client.Get(t.Context(), key, &corev1.Secret{})
	}
	require.NoError(t, secretOf(1))
	assert.Error(t, secretOf(2))

	evil := p.repo.Branch("fork", map[string]string{"one.yaml": configMapFile("one", "evil")})
	p.forge.Open(forgetest.Pull{Number: 2, Branch: "patch-1", Commit: evil, Fork: true})
	p.until("another commit needs another approval", func(all map[int64]runnerapi.SourcePreview) bool {
		return all[2].State == runnerapi.PreviewNeedsApproval && all[2].Commit == evil
	})
	await.Until(t, "the fork's preview is gone", func() bool { return len(p.namespaces()) == 1 })
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
}

// TestPreviews_StayInNamespace: a request cannot change what runs elsewhere.
func TestPreviews_StayInNamespace(t *testing.T) {
	t.Parallel()
	p := openPreviews(t, 2)
	for number, text := range map[int64]string{
		1: fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, namespace: %s}\ndata: {value: evil}\n", p.namespace),
		2: "apiVersion: v1\nkind: Namespace\nmetadata: {name: evil}\n",
	} {
		commit := p.repo.Branch("evil", map[string]string{"one.yaml": text})
		p.forge.Open(forgetest.Pull{Number: number, Branch: "evil", Commit: commit})
		all := p.until("the preview is refused", func(all map[int64]runnerapi.SourcePreview) bool { return all[number].SourceError != nil })
		if number == 1 { // this agent is limited to namespaces, and refuses others before
			assert.Contains(t, all[number].SourceError.Message, "a preview may only have objects in its own namespace")
		}
	}
	_, err := p.keeper.Set(t.Context(), runnerapi.Key{Namespace: runnerapi.PreviewNamespace(p.key("web"), 1), Name: "web"}, runnerapi.SourceSpec{
		URL: p.git.URL("shop/deploy.git"), Type: runnerapi.SourceManifests,
	}, runner)
	assert.ErrorContains(t, err, "is the preview of request 1")
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
}

// TestPreviews_Policy: the policy decides on the namespaces of previews as on others.
func TestPreviews_Policy(t *testing.T) {
	t.Parallel()
	p := openPreviews(t, 1)
	p.allow(`
rules:
  - name: git
    commands: ["*", put-source, apply-manifests]
    namespaces: [` + p.namespace + `]
    kinds: [ConfigMap]
`)
	commit := p.open(1, "first")
	all := p.until("the preview is refused", func(all map[int64]runnerapi.SourcePreview) bool { return all[1].State == runnerapi.PreviewFailed })
	assert.Equal(t, string(runnerapi.CodePolicyDenied), all[1].Error.Code)
	assert.Empty(t, p.namespaces())
	p.allow(allowingPreviews)
	p.until("once it is allowed, it is there", ready(1, commit))
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
}

// TestPreviews_Credentials: who may create sources in one namespace does not use the Secrets of
// another.
func TestPreviews_Credentials(t *testing.T) {
	t.Parallel()
	p := openPreviews(t, 2)
	commit := p.open(1, "first")
	p.until("the preview is there", ready(1, commit))
	forged := &unstructured.Unstructured{}
	key := client.ObjectKey{Namespace: runnerapi.PreviewNamespace(p.key("web"), 1), Name: "web"}
	forged.SetGroupVersionKind(schema.GroupVersionKind{Group: source.Group, Version: source.Version, Kind: source.Kind})
	require.NoError(t, p.env.Client.Get(t.Context(), key, forged))
	for what, change := range map[string]func(spec map[string]any){
		"another number": func(spec map[string]any) { spec["previewOf"].(map[string]any)["number"] = int64(2) },
		"another name":   func(map[string]any) {},
		"another path":   func(spec map[string]any) { spec["path"] = "elsewhere" },
	} {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(forged.GroupVersionKind())
		o.SetNamespace(key.Namespace)
		o.SetName("forged-" + strings.Split(what, " ")[1])
		o.SetAnnotations(forged.GetAnnotations())
		o.Object["spec"] = forged.DeepCopy().Object["spec"]
		change(o.Object["spec"].(map[string]any))
		require.NoError(t, p.env.Client.Create(t.Context(), o))
		await.Until(t, what+" is refused", func() bool {
			s, err := p.keeper.Get(t.Context(), runnerapi.Key{Namespace: o.GetNamespace(), Name: o.GetName()})
			require.NoError(t, err)
			return s.Status.Error != nil && strings.Contains(s.Status.Error.Message, "is not the one that source")
		})
	}
	require.NoError(t, p.keeper.Delete(t.Context(), p.key("web"), runner))
}

// TestPreviews_SignIn: visitors of previews sign in by the control plane's identity provider, if it
// has one, unless the source says otherwise.
func TestPreviews_SignIn(t *testing.T) {
	t.Parallel()
	p := openPreviews(t, 4)
	var has, known atomic.Bool
	p.config.SignIn = func() (bool, bool) { return has.Load(), known.Load() }
	p.restart()
	signsIn := func(what string, number int64, want bool) {
		t.Helper()
		await.Until(t, what, func() bool {
			p.clock.Step(5 * time.Second)
			s, err := p.keeper.Get(t.Context(), runnerapi.Key{Namespace: runnerapi.PreviewNamespace(p.key("web"), number), Name: "web"})
			return err == nil && s.Spec.PreviewOf.SignIn == want && s.Status.Commit != "" && s.Status.Error == nil
		})
	}
	warns := func(want bool) {
		t.Helper()
		await.Until(t, fmt.Sprintf("a warning: %t", want), func() bool {
			p.clock.Step(5 * time.Second)
			list, err := p.keeper.Previews(t.Context(), p.key("web"))
			require.NoError(t, err)
			return strings.Contains(list.Warning, "set previews.visitors") == want
		})
	}
	p.open(1, "first")
	signsIn("closed while the control plane has not said anything", 1, true)
	known.Store(true)
	signsIn("open without a provider", 1, false)
	warns(true)
	known.Store(false)
	p.open(2, "second")
	signsIn("a new one is closed again while nothing is known", 2, true)
	signsIn("and an older one stays as it is", 1, false)
	has.Store(true)
	known.Store(true)
	signsIn("closed with a provider", 1, true)
	warns(false)
	p.put("web", p.previews(func(s *runnerapi.SourceSpec) { s.Previews.Open = true }))
	signsIn("open on purpose", 1, false)
	has.Store(false)
	warns(false)
}
