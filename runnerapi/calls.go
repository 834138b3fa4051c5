package runnerapi

import (
	"net/url"
	"strings"
	"sync"
)

// Call is one call of the Runner API, as its reference describes it. The table in
// docs/reference/runner-api.md and the examples in the OpenAPI document are generated from these,
// and tests run every example.
type Call struct {
	Method, Path string
	ID           string   // operationId in the document: its name in policies, operations and the audit log
	Access       Access   // how the cluster owner's policy classifies it
	Client       []string // calls of a Client
	Command      string   // of pipeops-runner, if it has one
	Repeated     string   // what becomes of it when it is sent twice
	Body         string   // an example, if there is a body
	Example      string   // a line of shell; curl's, where pipeops-runner has no command
}

// Upgrades reports whether the call is a WebSocket, which curl does not support.
func (c Call) Upgrades() bool {
	return strings.HasSuffix(c.Path, "/exec") || strings.HasSuffix(c.Path, "/portforward")
}

// PathTo returns the call's path with names in place of its parameters, in order.
func (c Call) PathTo(names ...string) string {
	parts := strings.Split(c.Path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") && len(names) > 0 {
			parts[i], names = url.PathEscape(names[0]), names[1:]
		}
	}
	return strings.Join(parts, "/")
}

// CallOf returns the call with an ID. It panics if there is none.
func CallOf(id string) Call {
	call, known := callsByID()[id]
	if !known {
		panic("runnerapi: there is no call " + id)
	}
	return call
}

var callsByID = sync.OnceValue(func() map[string]Call {
	calls := map[string]Call{}
	for _, c := range Calls() {
		calls[c.ID] = c
	}
	return calls
})

// What sending a call twice does.
const (
	read     = "read"
	same     = "yes"
	thenGone = "yes: a repeated one answers 404"
	byKey    = "by key"
)

// The paths of objects in the table of calls.
const (
	appRoute       = "/v1/namespaces/{namespace}/apps/{name}"
	SecretPath     = "/v1/namespaces/{namespace}/secrets/{name}" //nolint:gosec // a path, no credential
	ConfigMapPath  = "/v1/namespaces/{namespace}/configmaps/{name}"
	namespaceRoute = "/v1/namespaces/{namespace}"
	jobRoute       = "/v1/namespaces/{namespace}/jobs/{name}"
	pipelineRoute  = "/v1/namespaces/{namespace}/pipelines/{name}"
	buildRoute     = "/v1/namespaces/{namespace}/builds/{name}"
	sourceRoute    = "/v1/namespaces/{namespace}/sources/{name}"
	nodeRoute      = "/v1/nodes/{name}"
	ApplyPath      = "/v1/apply"
	SetPath        = "/v1/namespaces/{namespace}/sets/{name}"
	releaseRoute   = "/v1/namespaces/{namespace}/releases/{name}"
	firstNode      = `"$(pipeops-runner node list shop -o json | jq -r '.items[0].name')"`
)

// Calls returns all calls. Their examples work one after the other, in this order: an earlier one
// creates what a later one removes.
func Calls() []Call {
	return []Call{
		{
			"GET", "/v1/cluster", "get-cluster", Reads, []string{"Cluster().Get"}, "cluster", read, "",
			"pipeops-runner cluster shop",
		}, {
			"PUT", namespaceRoute, "put-namespace", Writes, []string{"Namespaces().Set"}, "namespace create", same,
			`{"labels":{"team":"web"},"quota":{"requests":{"cpu":"4","memory":"8Gi"},"pods":50}}`,
			"pipeops-runner namespace create shop staging --label team=web --quota cpu=4,memory=8Gi,pods=50",
		}, {
			"GET", namespaceRoute, "get-namespace", Reads, []string{"Namespaces().Get"}, "namespace get", read, "",
			"pipeops-runner namespace get shop staging",
		}, {
			"GET", "/v1/namespaces", "list-namespaces", Reads, []string{"Namespaces().List"}, "namespace list", read, "",
			"pipeops-runner namespace list shop",
		}, {
			"DELETE", namespaceRoute, "delete-namespace", Writes, []string{"Namespaces().Delete"}, "namespace delete", thenGone, "",
			"pipeops-runner namespace delete shop staging --yes",
		}, {
			"PUT", SecretPath, "put-secret", Writes, []string{"Secrets().Set"}, "secret set", same,
			`{"data":{"GREETING":"hello"}}`,
			"printf hello | pipeops-runner secret set shop web-env --from-stdin GREETING",
		}, {
			"GET", SecretPath, "get-secret", Reads, []string{"Secrets().Get"}, "secret get", read, "",
			"pipeops-runner secret get shop web-env",
		}, {
			"GET", "/v1/namespaces/{namespace}/secrets", "list-secrets", Reads, []string{"Secrets().List"}, "secret list", read, "",
			"pipeops-runner secret list shop",
		}, {
			"PUT", ConfigMapPath, "put-config-map", Writes, []string{"ConfigMaps().Set"}, "configmap set", same,
			`{"data":{"LOG_LEVEL":"info"}}`,
			"pipeops-runner configmap set shop web-settings --from-literal LOG_LEVEL=info",
		}, {
			"GET", ConfigMapPath, "get-config-map", Reads, []string{"ConfigMaps().Get"}, "configmap get", read, "",
			"pipeops-runner configmap get shop web-settings",
		}, {
			"GET", "/v1/namespaces/{namespace}/configmaps", "list-config-maps", Reads, []string{"ConfigMaps().List"}, "configmap list", read, "",
			"pipeops-runner configmap list shop",
		}, {
			"PUT", appRoute, "put-app", Writes, []string{"Apps().Deploy"}, "deploy", same,
			`{"image":"registry.example.com/shop/web:1.4.2","ports":[{"port":8080}],"envFrom":[{"secret":"web-env"}]}`,
			"pipeops-runner deploy shop web --image registry.example.com/shop/web:1.4.2 --port 8080 --env-from web-env",
		}, {
			"GET", appRoute, "get-app", Reads, []string{"Apps().Get", "Apps().Wait", "Apps().Watch"}, "status", read, "",
			"pipeops-runner status shop web",
		}, {
			"GET", "/v1/apps", "list-apps", Reads, []string{"Apps().List"}, "apps -A", read, "",
			"pipeops-runner apps shop -A",
		}, {
			"GET", "/v1/namespaces/{namespace}/apps", "list-namespace-apps", Reads, []string{"Apps().List"}, "apps", read, "",
			"pipeops-runner apps shop",
		}, {
			"POST", appRoute + "/scale", "scale-app", Writes, []string{"Apps().Scale"}, "scale", same,
			`{"replicas":2}`,
			"pipeops-runner scale shop web --replicas 2",
		}, {
			"POST", appRoute + "/restart", "restart-app", Writes, []string{"Apps().Restart"}, "restart", byKey, "",
			"pipeops-runner restart shop web",
		}, {
			"POST", appRoute + "/pause", "pause-app", Writes, []string{"Apps().Pause"}, "pause", same, "",
			"pipeops-runner pause shop web",
		}, {
			"POST", appRoute + "/resume", "resume-app", Writes, []string{"Apps().Resume"}, "resume", same, "",
			"pipeops-runner resume shop web",
		}, {
			"GET", appRoute + "/revisions", "list-app-revisions", Reads, []string{"Apps().Revisions"}, "revisions", read, "",
			"pipeops-runner revisions shop web",
		}, {
			"POST", appRoute + "/rollback", "rollback-app", Writes, []string{"Apps().Rollback"}, "rollback", byKey,
			`{"revision":1}`,
			"pipeops-runner rollback shop web --to 1",
		}, {
			"GET", appRoute + "/events", "get-app-events", Reads, []string{"Apps().Events"}, "status --watch", read, "",
			"pipeops-runner status shop web --watch --wait=1m",
		}, {
			"GET", "/v1/operations/{id}", "get-operation", Reads, []string{"Operations().Get"}, "operation", read, "",
			`pipeops-runner operation shop "$(pipeops-runner restart shop web -o json | jq -r .operation)"`,
		}, {
			"GET", appRoute + "/logs", "get-app-logs", Reads, []string{"Apps().Logs"}, "logs", read, "",
			"pipeops-runner logs shop web --tail 20",
		}, {
			"GET", namespaceRoute + "/events", "list-events", Reads, []string{"Events().List"}, "events", read, "",
			"pipeops-runner events shop --since 30m",
		}, {
			"GET", appRoute + "/exec", ExecCall, Named, []string{"Apps().Exec"}, "exec", "no", "",
			"pipeops-runner exec shop web -- /hello -get http://127.0.0.1:8080/",
		}, {
			"GET", appRoute + "/portforward", PortForwardCall, Named, []string{"Apps().PortForward"}, "port-forward", "no", "",
			`pipeops-runner port-forward shop web :8080 -- sh -c 'curl -fsS "http://127.0.0.1:$PORT/"'`,
		}, {
			"GET", appRoute + "/metrics", "get-app-metrics", Reads, []string{"Monitoring().Metrics"}, "metrics", read, "",
			"pipeops-runner metrics shop web",
		}, {
			"GET", appRoute + "/metrics/history", "get-app-metrics-history", Reads, []string{"Monitoring().MetricsHistory"}, "metrics", read, "",
			"pipeops-runner metrics shop web --since 24h",
		}, {
			"GET", appRoute + "/traffic", "get-app-traffic", Reads, []string{"Routes().Traffic"}, "traffic", read, "",
			"pipeops-runner traffic shop web",
		}, {
			"GET", appRoute + "/access-log", AccessLogCall, Named, []string{"Routes().AccessLog"}, "access-log", read, "",
			"pipeops-runner access-log shop web --since 10m",
		}, {
			"PUT", releaseRoute, "put-release", Named, []string{"Releases().Deploy"}, "helm deploy", same,
			`{"chart":{"archive":"` + exampleChart + `"},"values":{"greeting":"hello"}}`,
			"pipeops-runner helm deploy shop guide --chart ./guide --set greeting=hello",
		}, {
			"GET", releaseRoute, "get-release", Reads, []string{"Releases().Get", "Releases().Wait"}, "helm status", read, "",
			"pipeops-runner helm status shop guide",
		}, {
			"GET", "/v1/namespaces/{namespace}/releases", "list-releases", Reads, []string{"Releases().List"}, "helm list", read, "",
			"pipeops-runner helm list shop",
		}, {
			"GET", releaseRoute + "/history", "list-release-history", Reads, []string{"Releases().History"}, "helm history", read, "",
			"pipeops-runner helm history shop guide",
		}, {
			"POST", releaseRoute + "/rollback", "rollback-release", Named, []string{"Releases().Rollback"}, "helm rollback", byKey,
			`{"revision":1}`,
			"pipeops-runner helm rollback shop guide --to 1",
		}, {
			"DELETE", releaseRoute, "delete-release", Named, []string{"Releases().Delete"}, "helm delete", thenGone, "",
			"pipeops-runner helm delete shop guide",
		}, {
			"PUT", buildRoute, "put-build", Named, []string{"Builds().Run"}, "build run", same,
			`{"git":{"url":"https://git.example.com/shop/web.git","ref":{"branch":"main"},"credentials":"web-env"},"image":"registry.example.com/shop/web","ca":{"configMap":"web-settings"},"history":1,"run":"build-1744"}`,
			"pipeops-runner build run shop web --git https://git.example.com/shop/web.git --ref main --git-credentials web-env --ca-config-map web-settings --image registry.example.com/shop/web --history 1 --run build-1742",
		}, {
			"GET", buildRoute, "get-build", Reads, []string{"Builds().Get", "Builds().Wait"}, "build status", read, "",
			"pipeops-runner build status shop web",
		}, {
			"GET", "/v1/namespaces/{namespace}/builds", "list-builds", Reads, []string{"Builds().List"}, "build list", read, "",
			"pipeops-runner build list shop",
		}, {
			"GET", buildRoute + "/logs", "build-logs", Reads, []string{"Builds().Logs"}, "build logs", read, "",
			"pipeops-runner build logs shop web",
		}, {
			"DELETE", buildRoute, "delete-build", Writes, []string{"Builds().Delete"}, "build delete", thenGone, "",
			"pipeops-runner build delete shop web",
		}, {
			"DELETE", appRoute, "delete-app", Writes, []string{"Apps().Delete"}, "delete", thenGone, "",
			"pipeops-runner delete shop web",
		}, {
			"POST", ApplyPath, ApplyCall, Named, []string{"Manifests().Apply"}, "apply", same,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web-flags"},"data":{"BANNER":"hello"}}`,
			"pipeops-runner apply shop -f extras.yaml --applyset web-extras",
		}, {
			"GET", "/v1/namespaces/{namespace}/sets", "list-sets", Reads, []string{"Manifests().List"}, "applyset list", read, "",
			"pipeops-runner applyset list shop",
		}, {
			"GET", SetPath, "get-set", Reads, []string{"Manifests().Get", "Manifests().Wait"}, "applyset get", read, "",
			"pipeops-runner applyset get shop web-extras",
		}, {
			"DELETE", SetPath, "delete-set", Named, []string{"Manifests().Delete"}, "applyset delete", thenGone, "",
			"pipeops-runner applyset delete shop web-extras",
		}, {
			"DELETE", ConfigMapPath, "delete-config-map", Writes, []string{"ConfigMaps().Delete"}, "configmap delete", thenGone, "",
			"pipeops-runner configmap delete shop web-settings",
		}, {
			"DELETE", SecretPath, "delete-secret", Writes, []string{"Secrets().Delete"}, "secret delete", thenGone, "",
			"pipeops-runner secret delete shop web-env",
		},
		{
			"PUT", jobRoute, "put-job", Writes, []string{"Jobs().Run"}, "job run", same,
			`{"image":"registry.example.com/shop/web:1.4.2","args":["migrate"],"retries":1,"deadlineSeconds":600,"run":"build-1742"}`,
			"pipeops-runner job run shop migrate --image registry.example.com/shop/web:1.4.2 --retries 1 --deadline 10m -- migrate",
		}, {
			"GET", jobRoute, "get-job", Reads, []string{"Jobs().Get", "Jobs().Wait"}, "job status", read, "",
			"pipeops-runner job status shop migrate",
		}, {
			"GET", "/v1/namespaces/{namespace}/jobs", "list-jobs", Reads, []string{"Jobs().List"}, "job list", read, "",
			"pipeops-runner job list shop",
		}, {
			"GET", jobRoute + "/logs", "get-job-logs", Reads, []string{"Jobs().Logs"}, "job logs", read, "",
			"pipeops-runner job logs shop migrate --tail 20",
		}, {
			"DELETE", jobRoute, "delete-job", Writes, []string{"Jobs().Delete"}, "job delete", thenGone, "",
			"pipeops-runner job delete shop migrate",
		}, {
			"PUT", pipelineRoute, "put-pipeline", Writes, []string{"Pipelines().Run"}, "pipeline run", same,
			`{"image":"registry.example.com/shop/web:1.4.2","jobs":[{"name":"test","args":["test"]},{"name":"migrate","args":["migrate"]}],"run":"build-1742"}`,
			`echo '{"image":"registry.example.com/shop/web:1.4.2","jobs":[{"name":"test","args":["test"]},{"name":"migrate","args":["migrate"]}]}' | pipeops-runner pipeline run shop release -f -`,
		}, {
			"GET", pipelineRoute, "get-pipeline", Reads, []string{"Pipelines().Get", "Pipelines().Wait"}, "pipeline status", read, "",
			"pipeops-runner pipeline status shop release",
		}, {
			"GET", "/v1/namespaces/{namespace}/pipelines", "list-pipelines", Reads, []string{"Pipelines().List"}, "pipeline list", read, "",
			"pipeops-runner pipeline list shop",
		}, {
			"GET", pipelineRoute + "/logs", "get-pipeline-logs", Reads, []string{"Pipelines().Logs"}, "pipeline logs", read, "",
			"pipeops-runner pipeline logs shop release --tail 20",
		}, {
			"DELETE", pipelineRoute, "delete-pipeline", Writes, []string{"Pipelines().Delete"}, "pipeline delete", thenGone, "",
			"pipeops-runner pipeline delete shop release",
		}, {
			"GET", "/v1/audit", "list-audit", Reads, []string{"Audit().Find", "Audit().List"}, "audit", read, "",
			"pipeops-runner audit shop --app production/web --since 2h",
		}, {
			"GET", "/v1/nodes", "list-nodes", Reads, []string{"Nodes().List"}, "node list", read, "",
			"pipeops-runner node list shop",
		}, {
			"GET", nodeRoute, "get-node", Reads, []string{"Nodes().Get"}, "node get", read, "",
			"pipeops-runner node get shop " + firstNode,
		}, {
			"POST", nodeRoute + "/cordon", "cordon-node", Named, []string{"Nodes().Cordon"}, "node cordon", same, "",
			"pipeops-runner node cordon shop " + firstNode,
		}, {
			"POST", nodeRoute + "/drain", "drain-node", Named, []string{"Nodes().Drain"}, "node drain", same,
			`{"force":true,"deleteEmptyDirData":true}`,
			"pipeops-runner node drain shop " + firstNode + " --force --delete-emptydir-data --dry-run",
		}, {
			"POST", nodeRoute + "/uncordon", "uncordon-node", Named, []string{"Nodes().Uncordon"}, "node uncordon", same, "",
			"pipeops-runner node uncordon shop " + firstNode,
		},
		{
			"GET", "/v1/routes", "list-routes", Reads, []string{"Routes().List"}, "routes", read, "",
			"pipeops-runner routes shop",
		}, {
			"GET", "/v1/cluster/join", "get-join-command", Reads, []string{"Nodes().JoinCommand"}, "node join", read, "",
			"pipeops-runner node join shop",
		}, {
			"GET", "/v1/cluster/join/token", "get-join-token", Named, []string{"Nodes().JoinToken"}, "node join", read, "",
			"pipeops-runner node join shop --token",
		}, {
			"GET", KubernetesPath, KubernetesCall, Named, []string{"Kubernetes().Refusal"}, "kubeconfig", "as the API server has it", "",
			"pipeops-runner kubeconfig shop --kubeconfig shop.kubeconfig && kubectl --kubeconfig shop.kubeconfig get pods",
		}, {
			"PUT", sourceRoute, "put-source", Named, []string{"Sources().Set"}, "source set", same,
			`{"url":"https://git.example.com/shop/deploy.git","type":"app","path":"web/app.yaml"}`,
			"pipeops-runner source set shop web --url https://git.example.com/shop/deploy.git --type app --path web/app.yaml",
		}, {
			"GET", sourceRoute, "get-source", Reads, []string{"Sources().Get", "Sources().Wait"}, "source get", read, "",
			"pipeops-runner source get shop web",
		}, {
			"GET", "/v1/namespaces/{namespace}/sources", "list-sources", Reads, []string{"Sources().List"}, "source list", read, "",
			"pipeops-runner source list shop",
		}, {
			"POST", sourceRoute + "/sync", "sync-source", Writes, []string{"Sources().Sync"}, "source sync", same, "",
			"pipeops-runner source sync shop web",
		}, {
			"POST", sourceRoute + "/rollback", "rollback-source", Writes, []string{"Sources().Rollback"}, "source rollback", byKey,
			`{"commit":"0a1b2c3d4e5f"}`,
			"pipeops-runner source rollback shop web",
		}, {
			"POST", sourceRoute + "/promotion/approve", "approve-promotion", Named, []string{"Sources().ApprovePromotion"}, "source approve", same,
			`{"commit":"0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"}`,
			"pipeops-runner source approve shop web --commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
		}, {
			"GET", sourceRoute + "/previews", "list-source-previews", Reads, []string{"Sources().Previews"}, "source previews list", read, "",
			"pipeops-runner source previews list shop web",
		}, {
			"POST", sourceRoute + "/previews/{number}/approve", "approve-preview", Named, []string{"Sources().ApprovePreview"}, "source previews approve", same,
			`{"commit":"0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"}`,
			"pipeops-runner source previews approve shop web 12 --commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
		}, {
			"DELETE", sourceRoute, "delete-source", Writes, []string{"Sources().Delete"}, "source delete", thenGone, "",
			"pipeops-runner source delete shop web",
		},
		{
			"GET", "/v1/alerts", "list-alerts", Reads, []string{"Monitoring().Alerts"}, "alerts", read, "",
			"pipeops-runner alerts shop",
		}, {
			"GET", namespaceRoute + "/alerts", "list-namespace-alerts", Reads, []string{"Monitoring().Alerts"}, "alerts", read, "",
			"pipeops-runner alerts shop -n production",
		}, {
			"GET", "/v1/cost", "get-cost", Reads, []string{"Monitoring().Cost"}, "cost", read, "",
			"pipeops-runner cost shop",
		}, {
			"GET", namespaceRoute + "/cost", "get-namespace-cost", Reads, []string{"Monitoring().Cost"}, "cost", read, "",
			"pipeops-runner cost shop -n production --by app",
		},
		{"GET", "/healthz", "", Open, nil, "", read, "", curl("GET", "/healthz", "")},
		{"GET", "/readyz", "", Open, nil, "", read, "", curl("GET", "/readyz", "")},
		{"GET", "/openapi.json", "", Open, nil, "", read, "", curl("GET", "/openapi.json", "") + " -o openapi.json"},
	}
}

// ApplyCall is the ID of the call that applies manifests.
const ApplyCall = "apply-manifests"

// KubernetesPath is the path of that call in the table of calls. {path} stands for any number of
// segments.
const KubernetesPath = "/v1/kubernetes/{path}"

// OtherCall stands for requests that are not calls of a Runner: probes, and unknown paths.
const OtherCall = "other"

// AccessLogCall is the ID of the call that reads an App's access log. The agent keeps one while a
// policy names the call.
const AccessLogCall = "get-app-access-log"

// ExecCall is the ID of the call that runs a command in a container.
const ExecCall = "exec-app"

// PortForwardCall is the ID of the call that forwards a port of an App.
const PortForwardCall = "port-forward-app"

// KubernetesCall is the ID of the call that forwards requests to the Kubernetes API. A policy that
// names it also names the identity to use.
const KubernetesCall = "kubernetes-api"
