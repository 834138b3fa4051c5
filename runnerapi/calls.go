package runnerapi

// Call is one call of the Runner API, as its reference tells of it. The table
// in docs/runner-api.md and the examples in the OpenAPI document are made from
// these, and tests run every example.
type Call struct {
	Method, Path string
	Client       []string // methods of Client
	Command      string   // of pipeops-runner, where it has one
	Repeated     string   // what becomes of it when it is sent twice
	Body         string   // an example, where there is a body
	Example      string   // a line of shell; curl's, where pipeops-runner has no command
}

// What sending a call twice does.
const (
	read     = "read"
	same     = "yes"
	thenGone = "yes: a repeated one answers 404"
	byKey    = "by key"
)

const (
	appRoute       = "/v1/namespaces/{namespace}/apps/{name}"
	secretRoute    = "/v1/namespaces/{namespace}/secrets/{name}" //nolint:gosec // a path, no credential
	configMapRoute = "/v1/namespaces/{namespace}/configmaps/{name}"
	namespaceRoute = "/v1/namespaces/{namespace}"
)

// Calls are all calls. Their examples work one after the other, in this order:
// what one of them removes, an earlier one has made.
func Calls() []Call {
	return []Call{
		{
			"GET", "/v1/cluster", []string{"Cluster"}, "cluster", read, "",
			"pipeops-runner cluster shop",
		}, {
			"PUT", namespaceRoute, []string{"PutNamespace"}, "namespace create", same,
			`{"labels":{"team":"web"},"quota":{"requests":{"cpu":"4","memory":"8Gi"},"pods":50}}`,
			"pipeops-runner namespace create shop staging --label team=web --quota cpu=4,memory=8Gi,pods=50",
		}, {
			"GET", namespaceRoute, []string{"GetNamespace"}, "namespace get", read, "",
			"pipeops-runner namespace get shop staging",
		}, {
			"GET", "/v1/namespaces", []string{"ListNamespaces"}, "namespace list", read, "",
			"pipeops-runner namespace list shop",
		}, {
			"DELETE", namespaceRoute, []string{"DeleteNamespace"}, "namespace delete", thenGone, "",
			"pipeops-runner namespace delete shop staging --yes",
		}, {
			"PUT", secretRoute, []string{"PutSecret"}, "secret set", same,
			`{"data":{"GREETING":"hello"}}`,
			"printf hello | pipeops-runner secret set shop web-env --from-stdin GREETING",
		}, {
			"GET", secretRoute, []string{"GetSecret"}, "secret get", read, "",
			"pipeops-runner secret get shop web-env",
		}, {
			"GET", "/v1/namespaces/{namespace}/secrets", []string{"ListSecrets"}, "secret list", read, "",
			"pipeops-runner secret list shop",
		}, {
			"PUT", configMapRoute, []string{"PutConfigMap"}, "config set", same,
			`{"data":{"LOG_LEVEL":"info"}}`,
			"pipeops-runner config set shop web-settings --from-literal LOG_LEVEL=info",
		}, {
			"GET", configMapRoute, []string{"GetConfigMap"}, "config get", read, "",
			"pipeops-runner config get shop web-settings",
		}, {
			"GET", "/v1/namespaces/{namespace}/configmaps", []string{"ListConfigMaps"}, "config list", read, "",
			"pipeops-runner config list shop",
		}, {
			"PUT", appRoute, []string{"Deploy"}, "deploy", same,
			`{"image":"registry.example.com/shop/web:1.4.2","ports":[{"port":8080}],"envFrom":[{"secret":"web-env"}]}`,
			"pipeops-runner deploy shop web --image registry.example.com/shop/web:1.4.2 --port 8080 --env-from web-env",
		}, {
			"GET", appRoute, []string{"Get", "Wait", "Watch"}, "status", read, "",
			"pipeops-runner status shop web",
		}, {
			"GET", "/v1/apps", []string{"List"}, "apps -A", read, "",
			"pipeops-runner apps shop -A",
		}, {
			"GET", "/v1/namespaces/{namespace}/apps", []string{"List"}, "apps", read, "",
			"pipeops-runner apps shop",
		}, {
			"POST", appRoute + "/scale", []string{"Scale"}, "scale", same,
			`{"replicas":2}`,
			"pipeops-runner scale shop web --replicas 2",
		}, {
			"POST", appRoute + "/restart", []string{"Restart"}, "restart", byKey, "",
			"pipeops-runner restart shop web",
		}, {
			"POST", appRoute + "/pause", []string{"Pause"}, "pause", same, "",
			"pipeops-runner pause shop web",
		}, {
			"POST", appRoute + "/resume", []string{"Resume"}, "resume", same, "",
			"pipeops-runner resume shop web",
		}, {
			"GET", appRoute + "/revisions", []string{"Revisions"}, "revisions", read, "",
			"pipeops-runner revisions shop web",
		}, {
			"POST", appRoute + "/rollback", []string{"Rollback"}, "rollback", byKey,
			`{"revision":1}`,
			"pipeops-runner rollback shop web --to 1",
		}, {
			"GET", appRoute + "/events", []string{"Events"}, "events", read, "",
			"pipeops-runner events shop web",
		}, {
			"GET", "/v1/operations/{id}", []string{"Operation"}, "operation", read, "",
			`pipeops-runner operation shop "$(pipeops-runner restart shop web -o json | jq -r .operation)"`,
		}, {
			"GET", appRoute + "/logs", []string{"Logs"}, "logs", read, "",
			"pipeops-runner logs shop web --tail 20",
		}, {
			"GET", appRoute + "/metrics", []string{"Metrics"}, "metrics", read, "",
			"pipeops-runner metrics shop web",
		}, {
			"DELETE", appRoute, []string{"Delete"}, "delete", thenGone, "",
			"pipeops-runner delete shop web",
		}, {
			"DELETE", configMapRoute, []string{"DeleteConfigMap"}, "config delete", thenGone, "",
			"pipeops-runner config delete shop web-settings",
		}, {
			"DELETE", secretRoute, []string{"DeleteSecret"}, "secret delete", thenGone, "",
			"pipeops-runner secret delete shop web-env",
		},
		{"GET", "/healthz", nil, "", read, "", curl("GET", "/healthz", "")},
		{"GET", "/readyz", nil, "", read, "", curl("GET", "/readyz", "")},
		{"GET", "/openapi.json", nil, "", read, "", curl("GET", "/openapi.json", "") + " -o openapi.json"},
	}
}
