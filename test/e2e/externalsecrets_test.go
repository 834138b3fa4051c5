package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/gitserver"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

// elsewhereKept has the operator External Secrets beside the agent, a store of it, and the
// documentation's objects.
type elsewhereKept struct {
	*shell
	documented string // the ExternalSecret
	deploy     string // the commands that apply it, and deploy the App
}

// TestExternalSecrets_BesideApps: the real External Secrets makes the Secret of an App, from an
// object that a Runner applies. Of the store, which is the operator's fake one, the cluster's owner
// writes the values.
func TestExternalSecrets_BesideApps(t *testing.T) {
	suite.Release(t, "External Secrets: Secrets of Apps that the operator makes")
	e := newElsewhereKept(t)
	e.isMissing(t)
	e.isMade(t)
	e.isOthers(t)
	e.isRotated(t)
	e.goes(t)
	e.comesFromGit(t)
	vaultsPassThrough(t, e)
}

func newElsewhereKept(t *testing.T) *elsewhereKept {
	t.Helper()
	installExternalSecrets(t)
	e := &elsewhereKept{shell: newShell(t)}
	e.allow(t)
	yaml, err := harness.Named("docs/reference/runner-api.md", "yaml")
	require.NoError(t, err)
	commands, err := harness.Named("docs/reference/runner-api.md", "sh")
	require.NoError(t, err)
	e.documented, e.deploy = yaml["external-secret"], commands["external-secret"]
	require.NotEmpty(t, e.deploy)
	e.owns(t, yaml["external-secret-rights"])
	e.keeps(t, "")
	removeApp(t, "web")
	return e
}

// owns applies what the cluster's owner does, until the end of the test.
func (e *elsewhereKept) owns(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "owner.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, err := sys.Cluster.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "-n", namespace, "-f", file)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := sys.Cluster.Kubectl(ctx, "delete", "--ignore-not-found", "-n", namespace, "-f", file)
		assert.NoError(t, err)
	})
}

// keeps has the store keep a greeting, or nothing of it.
func (e *elsewhereKept) keeps(t *testing.T, greeting string) {
	t.Helper()
	data := "{key: other, value: unused}"
	if greeting != "" {
		data = `{key: shop/web, value: '{"greeting": "` + greeting + `"}'}`
	}
	e.owns(t, "apiVersion: external-secrets.io/v1\nkind: SecretStore\nmetadata: {name: vault}\nspec: {provider: {fake: {data: ["+data+"]}}}\n")
}

// often is the documentation's object, to be refreshed often.
func (e *elsewhereKept) often(t *testing.T) string {
	t.Helper()
	require.Contains(t, e.documented, "refreshInterval: 1m")
	return strings.Replace(e.documented, "refreshInterval: 1m", "refreshInterval: 2s", 1)
}

// status is the App's.
func status(t *testing.T, app string) (a runnerapi.App) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(pipeops(t, "status", agentName, app, "-o", "json")), &a))
	return a
}

// isMissing deploys the App before its Secret can be made.
func (e *elsewhereKept) isMissing(t *testing.T) {
	t.Helper()
	deployed := strings.Split(strings.TrimSpace(e.deploy), "\n")[1]
	e.run(t, deployed+" --no-wait")
	await.Until(t, "the App's status names the Secret", func() bool {
		d := status(t, "web").Status.Diagnosis
		return d != nil && d.Cause == runnerapi.CauseMissingSecret && strings.Contains(d.Fix, `create secret "web-env"`)
	})
	require.NoError(t, os.WriteFile(filepath.Join(e.dir, "web-env.yaml"), []byte(e.often(t)), 0o600))
	e.fails(t, "pipeops-runner apply shop -f web-env.yaml --applyset web-env --wait=2m", "Secret does not exist")
	await.Until(t, "the App's status names the ExternalSecret and its error", func() bool {
		d := status(t, "web").Status.Diagnosis
		return d != nil && d.Cause == runnerapi.CauseMissingSecret && d.Object == "externalsecret/web-env" &&
			strings.Contains(d.Message, "ExternalSecret web-env cannot make it") && strings.Contains(d.Fix, "describe externalsecret web-env")
	})
}

// isMade runs the documentation's commands once the store keeps the value.
func (e *elsewhereKept) isMade(t *testing.T) {
	t.Helper()
	e.keeps(t, "hello from elsewhere")
	_, err := sys.Cluster.Kubectl(t.Context(), "annotate", "-n", namespace, "externalsecret", "web-env", "force-sync=now")
	require.NoError(t, err)
	e.run(t, e.deploy)
	e.greets(t, "hello from elsewhere")
}

func (e *elsewhereKept) greets(t *testing.T, greeting string) {
	t.Helper()
	began := time.Now()
	await.Until(t, "the App has "+greeting, func() bool {
		answer, err := sys.Kube.ServiceGet(t.Context(), namespace, "web", 8080, "/")
		return err == nil && strings.Contains(answer, greeting)
	})
	t.Logf("the App has the value after %s", time.Since(began).Round(time.Second))
}

// isOthers has the agent leave the Secret to its operator.
func (e *elsewhereKept) isOthers(t *testing.T) {
	t.Helper()
	assert.NotContains(t, pipeops(t, "secret", "list", agentName), "web-env")
	refused(t, exitNotFound, "secret", "get", agentName, "web-env")
	refused(t, exitNotFound, "secret", "delete", agentName, "web-env")
	e.fails(t, "pipeops-runner secret set shop web-env --from-literal GREETING=ours", "was not created through the agent")
	require.NoError(t, os.WriteFile(filepath.Join(e.dir, "ours.yaml"),
		[]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: web-env}\nstringData: {GREETING: ours}\n"), 0o600))
	e.fails(t, "pipeops-runner apply shop -f ours.yaml --applyset ours --wait=10s", "web-env")

	secret := theSecret(t)
	require.NotNil(t, secret)
	assert.Equal(t, "ExternalSecret", metav1.GetControllerOf(secret).Kind)
	for _, by := range secret.ManagedFields {
		assert.NotContains(t, by.Manager, "pipeops")
	}
}

// theSecret is what the operator made; nil for nothing.
func theSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	list, err := sys.Kube.Clientset.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=web-env"})
	require.NoError(t, err)
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// isRotated changes the value where it is kept, and nothing in the cluster.
func (e *elsewhereKept) isRotated(t *testing.T) {
	t.Helper()
	before := status(t, "web").Generation
	e.keeps(t, "rotated")
	e.greets(t, "rotated")
	assert.Equal(t, before, status(t, "web").Generation, "its spec is the same")
	await.Until(t, "the App is healthy again", func() bool { return status(t, "web").Status.Phase == runnerapi.PhaseHealthy })
}

// goes deletes the set: the operator's Secret goes, and the App's pods stay.
func (e *elsewhereKept) goes(t *testing.T) {
	t.Helper()
	pipeops(t, "applyset", "delete", agentName, "web-env")
	await.Until(t, "the Secret is gone", func() bool { return theSecret(t) == nil })
	assert.Equal(t, runnerapi.PhaseHealthy, status(t, "web").Status.Phase)
	e.greets(t, "rotated")
}

// comesFromGit has the object, and a Deployment that uses its Secret, come from one folder of a
// repository, and the App from another.
func (e *elsewhereKept) comesFromGit(t *testing.T) {
	t.Helper()
	server := gitserver.Start(t, "", "")
	ssh := server.StartSSHAt(t, sys.HostIP())
	repo := server.Create(t, "shop/deploy.git")
	for name, text := range map[string][]byte{"deploy-key": ssh.Identity, "known_hosts": ssh.KnownHosts} {
		require.NoError(t, os.WriteFile(filepath.Join(e.dir, name), text, 0o600))
	}
	worker := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web-worker}
spec:
  selector: {matchLabels: {app: web-worker}}
  template:
    metadata: {labels: {app: web-worker}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: worker
          image: %s
          envFrom: [{secretRef: {name: web-env}}]
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`, image)
	external := e.often(t)
	app := "image: " + image + "\nports: [{port: 8080}]\nenvFrom: [{secret: web-env}]\nrestartOn: [secrets]\n"
	repo.Commit(map[string]string{"manifests/secret.yaml": external, "manifests/worker.yaml": worker, "app/app.yaml": app})
	e.run(t, "pipeops-runner secret set shop git-deploy --from-literal url="+ssh.URL("shop/")+" --from-file identity=deploy-key --from-file known_hosts")
	set := "pipeops-runner source set shop %s --url " + ssh.URL("shop/deploy.git") + " --secret git-deploy --wait=2m "
	e.run(t, fmt.Sprintf(set, "web-parts")+"--type manifests --path manifests --prune")
	e.run(t, fmt.Sprintf(set, "web")+"--type app --path app/app.yaml")
	e.greets(t, "rotated")

	repo.Commit(map[string]string{"manifests/secret.yaml": strings.Replace(external, "shop/web", "shop/nothing", 1)})
	pipeops(t, "source", "sync", agentName, "web-parts")
	await.Until(t, "the source's status names the ExternalSecret and its error", func() bool {
		var s runnerapi.Source
		require.NoError(t, json.Unmarshal([]byte(pipeops(t, "source", "get", agentName, "web-parts", "-o", "json")), &s))
		h := s.Status.Health
		return s.Status.Phase == runnerapi.SourceDegraded && h != nil && strings.Contains(h.Object, "ExternalSecret") && strings.Contains(h.Message, "Secret does not exist")
	})
	assert.NotNil(t, theSecret(t), "the operator keeps what it made")

	repo.Commit(map[string]string{"manifests/secret.yaml": ""})
	pipeops(t, "source", "sync", agentName, "web-parts", "--wait=2m")
	await.Until(t, "the Secret goes with its object", func() bool { return theSecret(t) == nil })
	for _, source := range []string{"web-parts", "web"} {
		pipeops(t, "source", "delete", agentName, source)
	}
	require.NoError(t, sys.Kube.Clientset.AppsV1().Deployments(namespace).Delete(t.Context(), "web-worker", metav1.DeleteOptions{}))
	pipeops(t, "secret", "delete", agentName, "git-deploy")
}

// vaultKind is the part that the agent reads of the definition of HashiCorp's Vault Secrets
// Operator. The operator itself needs a Vault: the test writes the status that it writes.
const vaultKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: vaultstaticsecrets.secrets.hashicorp.com}
spec:
  group: secrets.hashicorp.com
  scope: Namespaced
  names: {kind: VaultStaticSecret, listKind: VaultStaticSecretList, plural: vaultstaticsecrets, singular: vaultstaticsecret}
  versions:
    - name: v1beta1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, properties: {lastGeneration: {type: integer}, secretMAC: {type: string}}}
`

// vaultsPassThrough applies an object of Vault's operator, which is ready when its operator has
// read the secret.
func vaultsPassThrough(t *testing.T, e *elsewhereKept) {
	t.Helper()
	e.owns(t, vaultKind)
	e.owns(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: vault-secrets}
rules: [{apiGroups: [secrets.hashicorp.com], resources: [vaultstaticsecrets], verbs: [get, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: vault-secrets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: vault-secrets}
subjects: [{kind: ServiceAccount, name: pipeops-agent, namespace: pipeops}]
`)
	require.NoError(t, os.WriteFile(filepath.Join(e.dir, "vault.yaml"), []byte(`apiVersion: secrets.hashicorp.com/v1beta1
kind: VaultStaticSecret
metadata: {name: db}
spec: {type: kv-v2, mount: shop, path: db, destination: {name: db, create: true}}
`), 0o600))
	await.Until(t, "the set is applied", func() bool {
		out, err := e.command(t.Context(), "pipeops-runner apply shop -f vault.yaml --applyset vault").CombinedOutput()
		return err == nil && strings.Contains(string(out), "VaultStaticSecret")
	})
	assert.Contains(t, pipeops(t, "applyset", "get", agentName, "vault", "-o", "json"), "waits for Vault's operator to read the secret")
	_, err := sys.Cluster.Kubectl(t.Context(), "patch", "-n", namespace, "vaultstaticsecret", "db", "--subresource=status", "--type=merge",
		"-p", `{"status": {"lastGeneration": 1, "secretMAC": "bm90IG9uZQ=="}}`)
	require.NoError(t, err)
	e.run(t, "pipeops-runner apply shop -f vault.yaml --applyset vault --wait=1m")
	pipeops(t, "applyset", "delete", agentName, "vault")
}

// installExternalSecrets runs the operator with its owner's rights, and its kinds.
func installExternalSecrets(t *testing.T) {
	t.Helper()
	load(t, upstream.ExternalSecrets)
	kinds, err := upstream.ExternalSecretsKinds(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	for i, kind := range kinds {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("kind-%d.yaml", i)), kind, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "operator.yaml"), []byte(strings.ReplaceAll(externalSecretsOperator, "IMAGE", upstream.ExternalSecrets.Ref)), 0o600))
	_, err = sys.Cluster.Kubectl(t.Context(), "apply", "--server-side", "-f", dir)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := sys.Cluster.Kubectl(ctx, "delete", "--ignore-not-found", "-f", dir)
		assert.NoError(t, err)
	})
	_, err = sys.Cluster.Kubectl(t.Context(), "rollout", "status", "-n", "external-secrets", "deployment/external-secrets", "--timeout=3m")
	require.NoError(t, err)
}

const externalSecretsOperator = `apiVersion: v1
kind: Namespace
metadata: {name: external-secrets}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: external-secrets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: default, namespace: external-secrets}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: external-secrets, namespace: external-secrets}
spec:
  selector: {matchLabels: {app: external-secrets}}
  template:
    metadata: {labels: {app: external-secrets}}
    spec:
      containers: [{name: external-secrets, image: 'IMAGE', args: [--concurrent=1]}]
`
