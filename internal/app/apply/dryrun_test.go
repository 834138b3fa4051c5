package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// TestKept_WholePatch: what a webhook changes of every App is not the patch's fault.
func TestKept_WholePatch(t *testing.T) {
	unpatched := workload.Unpatched(web())[0]
	want := unpatched.DeepCopyObject().(*appsv1.Deployment)
	want.Spec.Template.Spec.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"db"}}}
	require.NoError(t, kept(unpatched, want, want))
	mirrored := want.DeepCopy()
	mirrored.Spec.Template.Spec.Containers[0].Image = "mirror.example.com/web:1"
	require.NoError(t, kept(unpatched, want, mirrored))
	mirrored.Spec.Template.Spec.HostAliases = nil
	p := problemtest.Of(t, kept(unpatched, want, mirrored), "dropped")
	assert.Equal(t, "patches", p.Field)
	assert.Contains(t, p.Detail, "spec.template.spec.hostAliases")
	assert.NotContains(t, p.Detail, "image")
}
