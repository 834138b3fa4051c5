package workloadhealth

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestSecretSource_State(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	live := fake.NewClientBuilder().WithObjects(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: "failed"},
		InvolvedObject: corev1.ObjectReference{Name: "db", UID: "1"}, Type: corev1.EventTypeWarning, Message: "no key shop/db",
	}).WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string {
		return []string{o.(*corev1.Event).InvolvedObject.Name}
	}).WithIndex(&corev1.Event{}, "type", func(o client.Object) []string { return []string{o.(*corev1.Event).Type} }).Build()
	c := &Checker{api: live, now: func() time.Time { return now }}

	const external = "apiVersion: external-secrets.io/v1\nkind: ExternalSecret\n"
	const vault = "apiVersion: secrets.hashicorp.com/v1beta1\nkind: VaultStaticSecret\n"
	const failing = "status: {conditions: [{type: Ready, status: 'False', message: could not get secret data}]}\n"
	const synced = "status: {syncedResourceVersion: 2-abc, conditions: [{type: Ready, status: 'True', message: secret synced}]}\n"
	meta := func(generation, written string) string {
		return "metadata: {name: db, namespace: shop, uid: '1', generation: " + generation + ", creationTimestamp: '2026-11-01T11:00:00Z',\n" +
			"  managedFields: [{manager: operator, subresource: status, time: '2026-11-01T12:00:00Z'}, {manager: pipeops-agent, time: '2026-11-01T" + written + "Z'}]}\n"
	}
	for name, test := range map[string]struct {
		object  string
		state   runnerapi.ObjectState
		message string
	}{
		"not seen yet":       {external + meta("1", "11:59:59"), runnerapi.ObjectInProgress, "waits for External Secrets to look at it"},
		"fails at first":     {external + meta("1", "11:59:31") + failing, runnerapi.ObjectInProgress, "could not get secret data: no key shop/db"},
		"keeps failing":      {external + meta("1", "11:59:30") + failing, runnerapi.ObjectFailed, "could not get secret data: no key shop/db"},
		"synced":             {external + meta("2", "11:00:00") + synced, runnerapi.ObjectReady, ""},
		"synced before":      {external + meta("3", "11:59:59") + synced, runnerapi.ObjectInProgress, "waits for External Secrets to read its newest spec"},
		"vault, not seen":    {vault + meta("1", "11:59:59"), runnerapi.ObjectInProgress, "waits for Vault's operator to read the secret: no key shop/db"},
		"vault, read":        {vault + meta("1", "11:59:59") + "status: {lastGeneration: 1, secretMAC: YQ==}\n", runnerapi.ObjectReady, ""},
		"vault, not hashed":  {vault + meta("1", "11:59:59") + "spec: {hmacSecretData: false}\n", "", ""},
		"another kind":       {"apiVersion: v1\nkind: ConfigMap\n" + meta("1", "11:59:59"), "", ""},
		"not understandable": {external + meta("1", "11:59:59") + "status: {conditions: none}\n", runnerapi.ObjectUnknown, "its status cannot be understood"},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			text, err := yaml.YAMLToJSON([]byte(test.object))
			require.NoError(t, err)
			require.NoError(t, u.UnmarshalJSON(text))
			r, is := c.ofSecretSource(t.Context(), u)
			assert.Equal(t, test.state != "", is)
			assert.Equal(t, Report{State: test.state, Message: test.message}, r)
		})
	}
}
