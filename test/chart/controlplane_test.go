package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestControlPlaneChart_Values(t *testing.T) {
	trial := render(t, controlChart, "trial.yaml")
	state := trial["StatefulSet pipeops-controlplane"]
	assert.NotContains(t, state.Object["spec"], "volumeClaimTemplates")
	assert.NotContains(t, field[map[string]any](t, trial["ConfigMap pipeops-controlplane"], "data"), "PIPEOPS_BROKER_URL_FILE")

	full := render(t, controlChart, "broker.yaml")
	settings := field[map[string]any](t, full["ConfigMap pipeops-controlplane"], "data")
	assert.Equal(t, "/etc/pipeops/broker/url", settings["PIPEOPS_BROKER_URL_FILE"])
	assert.Equal(t, "/etc/pipeops/broker/runner-url", settings["PIPEOPS_RUNNER_BROKER_URL_FILE"])
	assert.Len(t, field[[]any](t, full["StatefulSet pipeops-controlplane"], "spec", "volumeClaimTemplates"), 1)
	assert.Contains(t, full, "NetworkPolicy pipeops-controlplane")
	assert.NotContains(t, settings, "PIPEOPS_DATABASE_FILE")
	assert.NotContains(t, render(t, controlChart, "broker.yaml", "--set", "networkPolicy.enabled=false"), "NetworkPolicy pipeops-controlplane")

	hosted := render(t, controlChart, "postgresql.yaml")
	settings = field[map[string]any](t, hosted["ConfigMap pipeops-controlplane"], "data")
	assert.Equal(t, "/etc/pipeops/database/url", settings["PIPEOPS_DATABASE_FILE"])
	assert.Equal(t, "/etc/pipeops/database/ca.crt", settings["PIPEOPS_DATABASE_CA"])
	assert.NotContains(t, settings, "PIPEOPS_CA_KEY_FILE")
	assert.NotContains(t, hosted, "PodDisruptionBudget pipeops-controlplane")

	several := render(t, controlChart, "replicas.yaml")
	assert.Equal(t, "/etc/pipeops/ca-key/ca-key", field[map[string]any](t, several["ConfigMap pipeops-controlplane"], "data")["PIPEOPS_CA_KEY_FILE"])
	assert.Contains(t, several, "PodDisruptionBudget pipeops-controlplane")
	assert.Len(t, field[[]any](t, several["NetworkPolicy pipeops-controlplane"], "spec", "ingress"), 2, "the port for control planes is for them alone")
}

// TestControlPlaneChart_OpenID: without an issuer, nothing of OpenID Connect is rendered.
func TestControlPlaneChart_OpenID(t *testing.T) {
	assert.NotContains(t, field[map[string]any](t, render(t, controlChart, "broker.yaml")["ConfigMap pipeops-controlplane"], "data"), "PIPEOPS_OPENID_CLIENT_ID")
	settings := field[map[string]any](t, render(t, controlChart, "everything.yaml")["ConfigMap pipeops-controlplane"], "data")
	assert.Equal(t, "https://id.example.com/dex", settings["PIPEOPS_OPENID_ISSUER"])
	assert.Equal(t, "/etc/pipeops/openid/secret", settings["PIPEOPS_OPENID_CLIENT_SECRET_FILE"])
	assert.Equal(t, "/etc/pipeops/openid-ca/ca.crt", settings["PIPEOPS_OPENID_CA"])
	assert.Equal(t, "profile,roles", settings["PIPEOPS_OPENID_SCOPE"])
	assert.Equal(t, `"cn=ops,ou=groups,dc=example,dc=com=operator","platform-team=admin"`, settings["PIPEOPS_OPENID_ROLE"], "the commas of a group are quoted")
}

// TestControlPlaneChart_Gateway: the gateway has its own Service, and needs a domain.
func TestControlPlaneChart_Gateway(t *testing.T) {
	const service = "Service pipeops-controlplane-gateway"
	none := render(t, controlChart, "broker.yaml")
	assert.NotContains(t, none, service)
	assert.NotContains(t, field[map[string]any](t, none["ConfigMap pipeops-controlplane"], "data"), "PIPEOPS_GATEWAY_DOMAIN")

	full := render(t, controlChart, "gateway.yaml")
	settings := field[map[string]any](t, full["ConfigMap pipeops-controlplane"], "data")
	assert.Equal(t, "apps.example.com", settings["PIPEOPS_GATEWAY_DOMAIN"])
	assert.Equal(t, "/etc/pipeops/gateway", settings["PIPEOPS_GATEWAY_CERTIFICATES"])
	assert.Equal(t, "443", settings["PIPEOPS_GATEWAY_HTTPS_PORT"])
	assert.Equal(t, "Local", field[string](t, full[service], "spec", "externalTrafficPolicy"))
	assert.Len(t, field[[]any](t, full[service], "spec", "ports"), 2)
	ports := field[[]any](t, full["NetworkPolicy pipeops-controlplane"], "spec", "ingress")[0].(map[string]any)["ports"]
	assert.Len(t, ports, 5, "the public is let in")

	quic := render(t, controlChart, "gateway.yaml", "--set", "gateway.http3=true")
	port := field[[]any](t, quic[service], "spec", "ports")[2].(map[string]any)
	assert.Equal(t, "UDP", port["protocol"])
	ports = field[[]any](t, quic["NetworkPolicy pipeops-controlplane"], "spec", "ingress")[0].(map[string]any)["ports"]
	assert.Len(t, ports, 6, "HTTP/3 is let in")
	assert.Equal(t, "false", settings["PIPEOPS_GATEWAY_HTTP3"])

	open := render(t, controlChart, "gateway.yaml", "--set", "gateway.tcpPorts={5432,20000-20002}")
	assert.Equal(t, "5432,20000-20002", field[map[string]any](t, open["ConfigMap pipeops-controlplane"], "data")["PIPEOPS_GATEWAY_TCP_PORTS"])
	assert.Len(t, field[[]any](t, open[service], "spec", "ports"), 6)
	assert.EqualValues(t, 20002, field[[]any](t, open[service], "spec", "ports")[5].(map[string]any)["targetPort"])
	ports = field[[]any](t, open["NetworkPolicy pipeops-controlplane"], "spec", "ingress")[0].(map[string]any)["ports"]
	assert.Equal(t, map[string]any{"port": 20000.0, "endPort": 20002.0, "protocol": "TCP"}, ports.([]any)[6])

	open = render(t, controlChart, "gateway.yaml", "--set", "gateway.tcpPorts={53},gateway.udpPorts={53,20000-20001}")
	assert.Equal(t, "53,20000-20001", field[map[string]any](t, open["ConfigMap pipeops-controlplane"], "data")["PIPEOPS_GATEWAY_UDP_PORTS"])
	assert.Equal(t, map[string]any{"name": "tcp-53", "port": 53.0, "protocol": "TCP", "targetPort": 53.0}, field[[]any](t, open[service], "spec", "ports")[2])
	assert.Equal(t, map[string]any{"name": "udp-53", "port": 53.0, "protocol": "UDP", "targetPort": 53.0}, field[[]any](t, open[service], "spec", "ports")[3])
	ports = field[[]any](t, open["NetworkPolicy pipeops-controlplane"], "spec", "ingress")[0].(map[string]any)["ports"]
	assert.Equal(t, map[string]any{"port": 20000.0, "endPort": 20001.0, "protocol": "UDP"}, ports.([]any)[7])

	updated := render(t, controlChart, "gateway.yaml", "--set", "gateway.dnsUpdates.server=ns1.example.com:53,gateway.dnsUpdates.existingSecret=tsig")
	settings = field[map[string]any](t, updated["ConfigMap pipeops-controlplane"], "data")
	assert.Equal(t, "/etc/pipeops/gateway-dns/tsig.key", settings["PIPEOPS_GATEWAY_DNS_KEY_FILE"])

	updated = render(t, controlChart, "gateway.yaml", "--set", "gateway.dnsUpdates.provider=route53,gateway.eab.keyId=k1,gateway.eab.existingSecret=eab")
	settings = field[map[string]any](t, updated["ConfigMap pipeops-controlplane"], "data")
	assert.Equal(t, "route53", settings["PIPEOPS_GATEWAY_DNS_PROVIDER"])
	assert.NotContains(t, settings, "PIPEOPS_GATEWAY_DNS_KEY_FILE", "AWS gives the pods credentials")
	assert.Equal(t, "/etc/pipeops/gateway-eab/hmac.key", settings["PIPEOPS_GATEWAY_EAB_KEY_FILE"])

	own := render(t, controlChart, "gateway.yaml", "--set", "gateway.ca=internal,gateway.certificateSecrets=null,gateway.service.type=ClusterIP")
	settings = field[map[string]any](t, own["ConfigMap pipeops-controlplane"], "data")
	assert.Equal(t, "internal", settings["PIPEOPS_GATEWAY_CA"])
	assert.NotContains(t, settings, "PIPEOPS_GATEWAY_CERTIFICATES")
	assert.NotContains(t, field[map[string]any](t, own[service], "spec"), "externalTrafficPolicy")
}

// TestControlPlaneChart_SeparateGateways: separate gateways serve the public in place of the
// control planes. The port between the two is open to nothing else. Gateways have their own key,
// and not the CA's.
func TestControlPlaneChart_SeparateGateways(t *testing.T) {
	const name = "pipeops-controlplane-gateway"
	assert.NotContains(t, render(t, controlChart, "gateway.yaml"), "Deployment "+name)
	all := render(t, controlChart, "apart.yaml", "--set", "metrics.enabled=true")
	deployment, gateway := all["Deployment "+name], container(t, all["Deployment "+name])
	assert.Equal(t, []any{"gateway", "serve"}, gateway["args"])
	assert.Contains(t, gateway, "readinessProbe")
	labels := field[map[string]any](t, deployment, "spec", "selector", "matchLabels")
	planes := field[map[string]any](t, all["StatefulSet pipeops-controlplane"], "spec", "selector", "matchLabels")
	assert.NotEqual(t, planes["app.kubernetes.io/name"], labels["app.kubernetes.io/name"], "one is not the other")
	assert.Equal(t, labels, field[map[string]any](t, all["Service "+name], "spec", "selector"))
	assert.Equal(t, labels, field[map[string]any](t, all["PodDisruptionBudget "+name], "spec", "selector", "matchLabels"))
	assert.Len(t, field[[]any](t, all["Service "+name], "spec", "ports"), 3)

	var secrets []any
	for _, v := range podSpec(t, deployment)["volumes"].([]any) {
		secrets = append(secrets, v.(map[string]any)["secret"].(map[string]any)["secretName"])
	}
	assert.Equal(t, []any{"postgresql", "link-key"}, secrets)
	settings := field[map[string]any](t, all["ConfigMap "+name], "data")
	assert.Equal(t, "/etc/pipeops/link-key/link-key", settings["PIPEOPS_LINK_KEY_FILE"])
	assert.Equal(t, "/etc/pipeops/database/ca.crt", settings["PIPEOPS_DATABASE_CA"])
	assert.Equal(t, ":9443", settings["PIPEOPS_GATEWAY_HTTPS"])
	assert.NotContains(t, settings, "PIPEOPS_CA_KEY_FILE")
	assert.Equal(t, "true", field[map[string]any](t, all["ConfigMap pipeops-controlplane"], "data")["PIPEOPS_GATEWAY_APART"])

	for _, p := range container(t, all["StatefulSet pipeops-controlplane"])["ports"].([]any) {
		assert.NotContains(t, []any{"https", "http", "http3"}, p.(map[string]any)["name"], "the public goes to the gateways")
	}
	from := map[string]any{}
	for _, of := range []string{"pipeops-controlplane", name} {
		for _, rule := range field[[]any](t, all["NetworkPolicy "+of], "spec", "ingress") {
			for _, port := range rule.(map[string]any)["ports"].([]any) {
				from[of+" "+port.(map[string]any)["port"].(string)] = rule.(map[string]any)["from"]
			}
		}
	}
	pods := func(labels any) any { return map[string]any{"podSelector": map[string]any{"matchLabels": labels}} }
	anyone, metrics := any(nil), []any{map[string]any{"podSelector": map[string]any{}}}
	assert.Equal(t, map[string]any{
		"pipeops-controlplane api": anyone, "pipeops-controlplane tunnel": anyone, "pipeops-controlplane edge": anyone,
		"pipeops-controlplane metrics": metrics, "pipeops-controlplane peer": []any{pods(planes), pods(labels)},
		name + " https": anyone, name + " http": anyone, name + " http3": anyone, name + " health": anyone, name + " metrics": metrics,
	}, from)
}

func TestControlPlaneChart_RefusesWrongValues(t *testing.T) {
	for _, c := range []struct{ set, says string }{
		{"advertise.api=cp.example.com:8443", "/advertise/api"},
		{"advertise.tunnel=cp.example.com", "/advertise/tunnel"},
		{"advertise.edge=", "/advertise/edge"},
		{"advertise.edges=a:1", "'edges'"},
		{"replicaCount=2", "replicaCount: more than one need database.existingSecret and sharedCA.existingSecret"},
		{"replicaCount=0", "/replicaCount"},
		{"sharedCA.existingSecret=ca-key", "sharedCA.existingSecret: is for a CA in PostgreSQL"},
		{"sharedCA.key=", "/sharedCA/key"},
		{"postgresql.url=postgres://db", "'postgresql'"},
		{"heartbeatInterval=soon", "/heartbeatInterval"},
		{"certificateTtl=1 day", "/certificateTtl"},
		{"agentsDomain=Not A Domain", "/agentsDomain"},
		{"logLevel=trace", "/logLevel"},
		{"database.url=postgres://a:b@c/d", "'url'"},
		{"database.existingSecret=No Secret", "/database/existingSecret"},
		{"database.urlKey=", "/database/urlKey"},
		{"broker.url=amqp://a:b@c/", "'url'"},
		{"broker.urlKey=", "/broker/urlKey"},
		{"service.type=Ingress", "/service/type"},
		{"service.ports.api=0", "/service/ports/api"},
		{"gateway.domain=apps", "/gateway/domain"},
		{"gateway.ca=http://ca.example.com", "/gateway/ca"},
		{"gateway.service.ports.https=0", "/gateway/service/ports/https"},
		{"gateway.resolvers[0]=192.0.2.1", "/gateway/resolvers/0"},
		{"gateway.proxyProtocol[0]=lb.example.com", "/gateway/proxyProtocol/0"},
		{"gateway.dnsUpdates.server=ns1.example.com", "/gateway/dnsUpdates/server"},
		{"gateway.domain=apps.example.com,gateway.dnsUpdates.provider=cloudflare", "gateway.dnsUpdates.existingSecret"},
		{"gateway.dnsUpdates.provider=other", "/gateway/dnsUpdates/provider"},
		{"gateway.tcpPorts[0]=5432/udp", "/gateway/tcpPorts/0"},
		{"gateway.tcpPorts[0]=70000", "/gateway/tcpPorts/0"},
		{"gateway.udpPorts[0]=0", "/gateway/udpPorts/0"},
		{"gateway.domain=apps.example.com,gateway.eab.keyId=k1", "gateway.eab.existingSecret"},
		{"gateway.domain=apps.example.com,gateway.apart.enabled=true", "gateway.apart.enabled: needs database.existingSecret and sharedCA.existingSecret"},
		{"gateway.apart.enabled=true", "gateway.apart.enabled: needs gateway.domain"},
		{"gateway.apart.enabled=true,gateway.domain=apps.example.com,database.existingSecret=a,sharedCA.existingSecret=b", "gateway.apart.existingSecret: is missing"},
		{"gateway.apart.replicaCount=0", "/gateway/apart/replicaCount"},
		{"openid.issuer=http://id.example.com", "/openid/issuer"},
		{"openid.issuer=https://id.example.com", "openid.existingSecret: is missing"},
		{"openid.roles.platform=owner", "/openid/roles/platform"},
		{"persistence.enabled=later", "/persistence/enabled"},
		{"persistence.size=1", "/persistence/size"},
	} {
		refuses(t, controlChart, "broker.yaml", c.set, c.says)
	}
}

// TestControlPlaneChart_InCluster installs the control plane by the commands of
// docs/reference/charts.md, on a volume; an agent registers with it, and both find their
// state again when the control plane's pod is replaced.
func TestControlPlaneChart_InCluster(t *testing.T) {
	suite.Release(t, "further lives of the charts")
	sys := system(t)
	_, err := sys.Cluster.LoadProgram(t.Context(), cluster.Program{
		Package: "./cmd/controlplane", Name: "pipeops-controlplane", Ref: "pipeops/controlplane:" + version, Version: version,
	})
	require.NoError(t, err)
	localVolume(t)
	files := brokerFiles(t)
	t.Cleanup(func() {
		removeAgent(t, "inside")
		out, err := runShell(context.WithoutCancel(t.Context()), documented(t, "controlplane-uninstall")+"kubectl delete persistentvolume controlplane")
		assert.NoError(t, err, out)
	})
	const host = "pipeops-controlplane.pipeops-system"
	said := shell(t, documented(t, "controlplane", "--from-file=rabbitmq/", "--from-file="+files,
		"--values controlplane.yaml", "--values "+controlChart+"/ci/broker.yaml --set service.type=ClusterIP"+
			",advertise.api=https://"+host+":8443,advertise.tunnel="+host+":7000,advertise.edge="+host+":8444"))
	assert.Contains(t, said, "Phase:          Succeeded")

	here := t.TempDir()
	shell(t, "cd "+here+"\n"+documented(t, "controlplane-admin"))
	credentials, err := os.ReadFile(filepath.Join(here, "builder.json"))
	require.NoError(t, err)
	assert.Contains(t, string(credentials), "amqps://runner:")

	shell(t, in("inside", documented(t, "install", exampleURL, "https://"+host+":8443", "pipeops-controlplane token create", "cat "+here+"/token")))
	first := inClusterAgent(t)
	shell(t, "kubectl -n pipeops-system delete pod pipeops-controlplane-0\n"+
		"kubectl -n pipeops-system rollout status statefulset/pipeops-controlplane --timeout=120s\nhelm test pipeops-controlplane --namespace pipeops-system")
	assert.Equal(t, first, inClusterAgent(t), "the control plane knows its agent again")
}

// TestControlPlaneChart_OnPostgreSQL installs it, by the commands of docs/reference/charts.md, on a
// database outside of the cluster. What is in there outlives the pod, and its volume.
func TestControlPlaneChart_OnPostgreSQL(t *testing.T) {
	suite.Release(t, "further lives of the charts")
	sys := system(t)
	_, err := sys.Cluster.LoadProgram(t.Context(), cluster.Program{
		Package: "./cmd/controlplane", Name: "pipeops-controlplane", Ref: "pipeops/controlplane:" + version, Version: version,
	})
	require.NoError(t, err)
	server, err := postgres.Start(t.Context(), postgres.Options{Listen: []string{sys.Cluster.HostIP()}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	database, err := server.NewDatabase(t.Context())
	require.NoError(t, err)
	files := t.TempDir()
	ca, err := os.ReadFile(server.CAFile())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(files, "url"), []byte(database.URLAt(sys.Cluster.HostIP())), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(files, "ca.crt"), ca, 0o600))
	t.Cleanup(func() {
		out, err := runShell(context.WithoutCancel(t.Context()), documented(t, "controlplane-uninstall"))
		assert.NoError(t, err, out)
	})
	const host = "pipeops-controlplane.pipeops-system"
	said := shell(t, documented(t, "controlplane-postgresql", "--from-file=postgresql/", "--from-file="+files,
		"--values controlplane.yaml", "--values "+controlChart+"/ci/postgresql.yaml --set service.type=ClusterIP,persistence.enabled=false"+
			",advertise.api=https://"+host+":8443,advertise.tunnel="+host+":7000,advertise.edge="+host+":8444"))
	assert.Contains(t, said, "Phase:          Succeeded")
	const admin = "kubectl -n pipeops-system exec pipeops-controlplane-0 -- /pipeops-controlplane "
	shell(t, admin+"token create --name kept")
	shell(t, "kubectl -n pipeops-system delete pod pipeops-controlplane-0\n"+
		"kubectl -n pipeops-system rollout status statefulset/pipeops-controlplane --timeout=120s")
	assert.Contains(t, shell(t, admin+"token list"), "kept")
	logs := shell(t, "kubectl -n pipeops-system logs pipeops-controlplane-0")
	assert.Contains(t, logs, "database postgres://")
	assert.NotContains(t, logs, database.Password)
}

// inClusterAgent waits until the control plane in the cluster has its agent
// online, and answers the agent's ID.
func inClusterAgent(t *testing.T) (id string) {
	t.Helper()
	eventually(t, clusterName+" is online", func(ctx context.Context) error {
		out, err := runShell(ctx, "kubectl -n pipeops-system exec pipeops-controlplane-0 -- /pipeops-controlplane agent list")
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == clusterName && f[2] == "online" {
				id = f[1]
				return nil
			}
		}
		return errors.Join(err, errors.New(out))
	})
	return id
}

// localVolume makes a volume of the kind that gets its owner from the pod, as
// those of most clouds do.
func localVolume(t *testing.T) {
	t.Helper()
	const path = "/var/lib/controlplane-volume"
	require.NoError(t, shared.sys.Cluster.ExecCommand(t.Context(), "mkdir", "-p", path).Run())
	shell(t, fmt.Sprintf(`kubectl apply -f - <<'END'
apiVersion: v1
kind: PersistentVolume
metadata: {name: controlplane}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  local: {path: %s}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]
END`, path, shared.sys.Cluster.NodeName()))
}

// brokerFiles is the folder from which docs/reference/charts.md makes the Secret. There is
// no RabbitMQ at that address: the control plane serves without.
func brokerFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := os.ReadFile(filepath.Join(shared.sys.DataDir(), "ca.pem"))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"url":        "amqps://controlplane:secret@rabbitmq.example.test:5671/",
		"runner-url": "amqps://runner:secret@rabbitmq.example.test:5671/",
		"ca.crt":     string(ca),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}
