package kube_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestConfigMap_Lifecycle(t *testing.T) {
	k := asAgent(t, kubetest.ControlPlane(t))
	name := key(production, "settings")
	put := func(spec runnerapi.ConfigMapSpec) runnerapi.ConfigMap {
		cm, err := k.ConfigMaps().Set(t.Context(), name, spec, byTest)
		require.NoError(t, err)
		return cm
	}
	first := put(runnerapi.ConfigMapSpec{Data: map[string]string{"a": "1", "b": "two"}, BinaryData: map[string][]byte{"c": {0xff}}})
	assert.Equal(t, []runnerapi.DataKey{{Key: "a", Size: 1}, {Key: "b", Size: 3}, {Key: "c", Size: 1}}, first.Keys)
	assert.Equal(t, first.Digest, put(runnerapi.ConfigMapSpec{Data: first.Data, BinaryData: first.BinaryData}).Digest)
	changed := put(runnerapi.ConfigMapSpec{Data: map[string]string{"a": "2"}})
	assert.NotEqual(t, first.Digest, changed.Digest)
	assert.Len(t, changed.Keys, 1, "a put replaces all keys")

	got, err := k.ConfigMaps().Get(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "2"}, got.Data, "values may be read back")
	digest, err := k.Contents().ContentDigest(t.Context(), runnerapi.RestartOnConfigMaps, name)
	require.NoError(t, err)
	assert.Equal(t, got.Digest, digest)
	list, err := k.ConfigMaps().List(t.Context(), production)
	require.NoError(t, err)
	require.Len(t, list, 1, "foreign ones, as kube-root-ca.crt, are not told of")
	assert.Empty(t, list[0].Data)
	assert.Equal(t, got.Keys, list[0].Keys)

	dry := byTest
	dry.DryRun = true
	_, err = k.ConfigMaps().Set(t.Context(), key(production, "imagined"), runnerapi.ConfigMapSpec{}, dry)
	require.NoError(t, err)
	_, err = k.ConfigMaps().Get(t.Context(), key(production, "imagined"))
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)
	require.NoError(t, k.ConfigMaps().Delete(t.Context(), name, byTest))
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, k.ConfigMaps().Delete(t.Context(), name, byTest)).Code)
	digest, err = k.Contents().ContentDigest(t.Context(), runnerapi.RestartOnConfigMaps, name)
	require.NoError(t, err)
	assert.Empty(t, digest)
}

// TestContents_ReservedNames: no call takes a name by which the agent, or Helm, finds its own
// objects.
func TestContents_ReservedNames(t *testing.T) {
	k := asAgent(t, kubetest.ControlPlane(t))
	refused := func(err error, says string) {
		t.Helper()
		p := problemOf(t, err)
		assert.Equal(t, runnerapi.CodeForbidden, p.Code)
		assert.Equal(t, "path.name", p.Field)
		assert.Contains(t, p.Detail, says)
	}
	for name, says := range map[string]string{
		"pipeops-release-victim": "locks of releases", "pipeops-set-victim": "inventories of sets", "pipeops-agent-mine": "the agent keeps",
	} {
		_, err := k.ConfigMaps().Set(t.Context(), key(production, name), runnerapi.ConfigMapSpec{}, byTest)
		refused(err, says)
	}
	for name, says := range map[string]string{"sh.helm.release.v1.second.v1": "Helm keeps releases", "pipeops-agent-mine": "the agent keeps"} {
		_, err := k.Secrets().Set(t.Context(), key(production, name), runnerapi.SecretSpec{}, byTest)
		refused(err, says)
	}
}

// TestConfigMap_DelayedPutKeepsNewer has a write come again after a newer one: from a
// replica that was held in the middle of it, while another carried it out.
func TestConfigMap_DelayedPutKeepsNewer(t *testing.T) {
	k := asAgent(t, kubetest.ControlPlane(t))
	name := key(production, "held")
	put := func(command, value string) runnerapi.ConfigMap {
		opts := byTest
		opts.Command = command
		cm, err := k.ConfigMaps().Set(t.Context(), name, runnerapi.ConfigMapSpec{Data: map[string]string{"a": value}}, opts)
		require.NoError(t, err)
		return cm
	}
	put("first", "old")
	newer := put("second", "new")
	assert.Equal(t, newer.Digest, put("first", "old").Digest, "it is answered as it is now")
	assert.NotEqual(t, newer.Digest, put("third", "old").Digest)
}

// TestContents_ChangedMeanwhile: a content that was made from an earlier one replaces no newer one.
func TestContents_ChangedMeanwhile(t *testing.T) {
	k := asAgent(t, kubetest.ControlPlane(t))
	name := key(production, "changed-meanwhile")
	for what, set := range map[string]func(value, digest string) (string, error){
		"config map": func(value, digest string) (string, error) {
			opts := byTest
			opts.Digest = digest
			cm, err := k.ConfigMaps().Set(t.Context(), name, runnerapi.ConfigMapSpec{Data: map[string]string{"a": value}}, opts)
			return cm.Digest, err
		},
		"secret": func(value, digest string) (string, error) {
			opts := byTest
			opts.Digest = digest
			s, err := k.Secrets().Set(t.Context(), name, runnerapi.SecretSpec{Data: map[string]string{"a": value}}, opts)
			return s.Digest, err
		},
	} {
		refused := func(value, digest, why string) {
			_, err := set(value, digest)
			var problem *runnerapi.Error
			require.ErrorAs(t, err, &problem, what)
			assert.Equal(t, runnerapi.CodeChanged, problem.Code, what)
			assert.Contains(t, problem.Detail, why, what)
		}
		refused("one", "none", "is not there any more")
		first, err := set("one", "")
		require.NoError(t, err)
		second, err := set("two", first)
		require.NoError(t, err, what)
		refused("three", first, "has digest "+second)
		_, err = set("three", second)
		require.NoError(t, err, what)
	}
}

// TestConfigMap_DelayedDeleteSparesNewer has a delete go on in a replica that was held in the
// middle of it, after another carried it out and something new was written under the same name.
func TestConfigMap_DelayedDeleteSparesNewer(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, other := asAgent(t, env), asAgent(t, env)
	name := key(production, "held-delete")
	for what, c := range map[string]struct {
		put    func(*kube.Client) error
		delete func(*kube.Client, runnerapi.WriteOptions) error
		get    func() error
	}{
		"config map": {
			func(k *kube.Client) error {
				_, err := k.ConfigMaps().Set(t.Context(), name, runnerapi.ConfigMapSpec{}, byTest)
				return err
			},
			func(k *kube.Client, opts runnerapi.WriteOptions) error {
				return k.ConfigMaps().Delete(t.Context(), name, opts)
			},
			func() error { _, err := k.ConfigMaps().Get(t.Context(), name); return err },
		},
		"secret": {
			func(k *kube.Client) error {
				_, err := k.Secrets().Set(t.Context(), name, runnerapi.SecretSpec{}, byTest)
				return err
			},
			func(k *kube.Client, opts runnerapi.WriteOptions) error {
				return k.Secrets().Delete(t.Context(), name, opts)
			},
			func() error { _, err := k.Secrets().Get(t.Context(), name); return err },
		},
	} {
		t.Run(what, func(t *testing.T) {
			require.NoError(t, c.put(other))
			answered, carryOut := false, func() {}
			held := byTest
			held.Answered = func(context.Context) (bool, error) { carryOut(); return answered, nil }

			// Held before it had read what there is: the journal tells.
			require.NoError(t, c.delete(other, byTest))
			answered = true
			require.NoError(t, c.put(other))
			require.NoError(t, c.delete(k, held))
			require.NoError(t, c.get(), "it is not the one that was to be deleted")

			// Held after that: the UID does, and then the journal.
			asked := false
			carryOut = func() {
				answered = asked
				if !asked {
					asked = true
					require.NoError(t, c.delete(other, byTest))
					require.NoError(t, c.put(other))
				}
			}
			require.NoError(t, c.delete(k, held))
			require.NoError(t, c.get())

			carryOut = func() { answered = false }
			require.NoError(t, c.delete(k, held))
			assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, c.get()).Code)
		})
	}
}

func TestConfigMap_ForeignUntouched(t *testing.T) {
	env, k := controlPlane(t)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "foreign"}, Data: map[string]string{"a": "b"}}
	require.NoError(t, env.Client.Create(t.Context(), foreign))
	_, err := k.ConfigMaps().Set(t.Context(), key(production, "foreign"), runnerapi.ConfigMapSpec{Data: map[string]string{"a": "c"}}, byTest)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeConflict, p.Code)
	assert.Contains(t, p.Fix, "delete configmap foreign")
	_, err = k.ConfigMaps().Get(t.Context(), key(production, "foreign"))
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, k.ConfigMaps().Delete(t.Context(), key(production, "foreign"), byTest)).Code)
	_, err = k.ConfigMaps().List(t.Context(), "kube-system")
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code)
	_, err = k.ConfigMaps().Set(t.Context(), key(production, "x"), runnerapi.ConfigMapSpec{Data: map[string]string{"a/b": "c"}}, byTest)
	assert.Equal(t, "data.a/b", problemOf(t, err).Field)
}
