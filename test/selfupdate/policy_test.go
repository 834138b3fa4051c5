package selfupdate

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// onlyImage is what the policy says of any change but one of the image.
const onlyImage = "nothing of its own Deployment but the image"

// TestSelfUpdate_ChangesImageOnly changes each field of its Deployment by which
// its pods would run in another way, one at a time, as the agent.
func TestSelfUpdate_ChangesImageOnly(t *testing.T) {
	env := kubetest.ControlPlane(t)
	c := env.Cluster
	file := filepath.Join(harness.Root(), "deployments", "self-update.yaml")
	require.NoError(t, inputs.Depend("deployments/self-update.yaml"))
	_, err := c.Kubectl(t.Context(), "apply", "--server-side", "-f", file)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := c.Kubectl(context.Background(), "delete", "-f", file)
		assert.NoError(t, err)
	})
	config := rest.CopyConfig(env.Agent)
	config.WarningHandler = rest.NoWarnings{} // of fields that are as they should not be
	agent, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	require.NoError(t, err)
	own := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.AgentNamespace, Name: "pipeops-agent"}}
	patch := func(ctx context.Context, change string) error {
		return agent.Patch(ctx, own, client.RawPatch(types.StrategicMergePatchType, []byte(change)), client.DryRunAll)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the policy is in force", func(ctx context.Context) error {
		if err := patch(ctx, `{"spec":{"replicas":5}}`); err == nil || !strings.Contains(err.Error(), onlyImage) {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	}))
	image := `{"metadata":{"annotations":{"pipeops.io/self-update":"{}"}},"spec":{"template":{"spec":{"containers":[{"name":"agent","image":"pipeops/agent@sha256:` +
		strings.Repeat("a", 64) + `"}]}}}}`
	require.NoError(t, patch(t.Context(), image))
	elsewhere := strings.Replace(image, "pipeops/agent@", "elsewhere.example.com/agent@", 1)
	assert.ErrorContains(t, patch(t.Context(), elsewhere), "from the repository that it runs from")
	assert.True(t, apierrors.IsForbidden(agent.Delete(t.Context(), own, client.DryRunAll)))
	for around, fields := range map[string][]string{
		`{"spec":{%s}}`: {
			`"strategy":{"rollingUpdate":{"maxUnavailable":1}}`, `"minReadySeconds":0`, `"revisionHistoryLimit":0`,
			`"progressDeadlineSeconds":7`, `"paused":true`,
		},
		`{"spec":{"template":{"metadata":{%s}}}}`: {`"labels":{"a":"b"}`, `"annotations":{"a":"b"}`},
		`{"spec":{"template":{"spec":{%s}}}}`: {
			`"volumes":[{"name":"host","hostPath":{"path":"/"}}]`, `"initContainers":[{"name":"first","image":"pipeops/agent"}]`,
			`"containers":[{"name":"second","image":"pipeops/agent"}]`, `"serviceAccountName":"default"`,
			`"automountServiceAccountToken":true`, `"securityContext":{"runAsUser":0}`, `"imagePullSecrets":[{"name":"a"}]`,
			`"runtimeClassName":"a"`, `"nodeName":"a"`, `"nodeSelector":{"a":"b"}`,
			`"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}}]}}`,
			`"tolerations":[{"operator":"Exists"}]`, `"topologySpreadConstraints":null`, `"schedulerName":"a"`,
			`"schedulingGates":[{"name":"example.com/a"}]`, `"priorityClassName":"system-node-critical"`, `"priority":1`,
			`"preemptionPolicy":"Never"`, `"hostNetwork":true`, `"hostPID":true`, `"hostIPC":true`,
			`"hostAliases":[{"ip":"192.0.2.1","hostnames":["control.example.com"]}]`, `"hostname":"a"`, `"subdomain":"a"`,
			`"setHostnameAsFQDN":true`, `"dnsPolicy":"Default"`, `"dnsConfig":{"nameservers":["192.0.2.1"]}`,
			`"shareProcessNamespace":true`, `"enableServiceLinks":false`, `"terminationGracePeriodSeconds":0`,
			`"readinessGates":[{"conditionType":"example.com/a"}]`, `"os":{"name":"linux"}`,
		},
		`{"spec":{"template":{"spec":{"containers":[{"name":"agent",%s}]}}}}`: {
			`"command":["a"]`, `"args":["version"]`, `"workingDir":"/"`, `"env":[{"name":"A","value":"b"}]`,
			`"envFrom":[{"secretRef":{"name":"a"}}]`, `"ports":[{"containerPort":8080,"hostPort":80}]`,
			`"volumeMounts":[{"name":"ca","mountPath":"/etc/other"}]`, `"lifecycle":{"preStop":{"exec":{"command":["a"]}}}`,
			`"livenessProbe":{"httpGet":{"host":"192.0.2.1"}}`, `"readinessProbe":{"httpGet":{"host":"192.0.2.1"}}`,
			`"startupProbe":{"httpGet":{"host":"192.0.2.1"}}`, `"imagePullPolicy":"Never"`,
			`"securityContext":{"readOnlyRootFilesystem":false}`, `"resources":{"limits":{"memory":"1Gi"}}`, `"stdin":true`,
			`"tty":true`, `"terminationMessagePath":"/a"`, `"terminationMessagePolicy":"File"`,
		},
	} {
		for _, field := range fields {
			assert.ErrorContains(t, patch(t.Context(), fmt.Sprintf(around, field)), onlyImage, field)
		}
	}
}
