package diagnose

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestMaker_NamesItsError(t *testing.T) {
	waiting := pod(waits("CreateContainerConfigError", `secret "db" not found`))
	mounting := preparingPod(0)
	ev := Evidence{
		Pods: []*corev1.Pod{waiting, mounting, waiting.DeepCopy()}, Now: now,
		Mounts: map[types.UID]string{mounting.UID: `MountVolume.SetUp failed for volume "certs" : secret "certs" not found`},
	}
	assert.ElementsMatch(t, []Source{{secret, "certs"}, {secret, "db"}}, MissingSources(&ev))

	ev.Makers = map[string]Maker{"db": {Kind: "ExternalSecret", Name: "db", Message: "the store has no key shop/db"}}
	ev.Pods = ev.Pods[:1]
	f := Find(ev)
	require.NotNil(t, f.Diagnosis)
	assert.Equal(t, runnerapi.CauseMissingSecret, f.Diagnosis.Cause)
	assert.Equal(t, "externalsecret/db", f.Diagnosis.Object)
	assert.Contains(t, f.Diagnosis.Message, `secret "db"`)
	assert.Contains(t, f.Diagnosis.Message, "ExternalSecret db cannot make it: the store has no key shop/db")
	assert.Contains(t, f.Diagnosis.Fix, "kubectl -n shop describe externalsecret db")
	assert.Equal(t, lookAgain, f.Recheck, "it may fail for another reason then")
	checkFix(t, f.Diagnosis)

	ev.There = map[Source]bool{{secret, "db"}: true}
	f = Find(ev)
	assert.Nil(t, f.Diagnosis, "the kubelet has not looked since")
	assert.Contains(t, f.Waiting, "secret db")
}

func TestMakes_CustomKindsOfSecrets(t *testing.T) {
	for kind, want := range map[[2]string]bool{
		{"external-secrets.io/v1", "ExternalSecret"}:           true,
		{"secrets.hashicorp.com/v1beta1", "VaultStaticSecret"}: true,
		{"bitnami.com/v1alpha1", "SealedSecret"}:               true,
		{"cert-manager.io/v1", "Certificate"}:                  true,
		{"v1", "Secret"}:                                       false,
		{"apps/v1", "Deployment"}:                              false,
		{"pipeops.io/v1alpha1", "App"}:                         false,
	} {
		assert.Equal(t, want, Makes(kind[0], kind[1]), kind)
	}
}
