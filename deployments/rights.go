package deployments

import "slices"

// Right is a use that the agent makes of the Kubernetes API, for which agent/rbac.yaml must grant a
// right.
type Right struct {
	Resource string // with its group, as in deployments.apps or pods/log
	Verbs    []string
	Own      bool // in the agent's own namespace
	Nodes    bool // granted by node-rights.yaml, where the cluster's owner applies it
	Users    bool // granted by kubernetes-api-rights.yaml, where the cluster's owner applies it
	Sources  bool // granted by sources.yaml, likewise
}

// Upkeep is what the agent does without being called, or for many calls alike.
type Upkeep struct {
	For    string
	Rights []Right
}

func on(resource string, verbs ...string) Right { return Right{Resource: resource, Verbs: verbs} }

func own(resource string, verbs ...string) Right {
	return Right{Resource: resource, Verbs: verbs, Own: true}
}

func forNodes(resource string, verbs ...string) Right {
	return Right{Resource: resource, Verbs: verbs, Nodes: true}
}

func forUsers(resource string, verbs ...string) Right {
	return Right{Resource: resource, Verbs: verbs, Users: true}
}

func forSources(resource string, verbs ...string) Right {
	return Right{Resource: resource, Verbs: verbs, Sources: true}
}

// kinds are what an App can become; a Job, which is checked otherwise, stands last.
var kinds = []string{
	"deployments.apps", "statefulsets.apps", "daemonsets.apps", "cronjobs.batch",
	"services", "ingresses.networking.k8s.io", "horizontalpodautoscalers.autoscaling", "poddisruptionbudgets.policy", "jobs.batch",
}

func onEach(resources []string, verbs ...string) []Right {
	out := make([]Right, len(resources))
	for i, r := range resources {
		out[i] = on(r, verbs...)
	}
	return out
}

// gatewayAPI are the kinds of the Gateway API that lead to routes.
var gatewayAPI = []string{
	"httproutes.gateway.networking.k8s.io", "referencegrants.gateway.networking.k8s.io",
	"gateways.gateway.networking.k8s.io", "gatewayclasses.gateway.networking.k8s.io",
}

// gatewayStatus are those of them whose status the agent writes.
var gatewayStatus = []string{
	"httproutes.gateway.networking.k8s.io/status", "gateways.gateway.networking.k8s.io/status", "gatewayclasses.gateway.networking.k8s.io/status",
}

const (
	apps       = "apps.pipeops.io"
	sources    = "sources.pipeops.io"
	revisions  = "controllerrevisions.apps"
	namespaces = "namespaces"
)

// Calls returns the rights that each call of the Runner API uses, by the ID of the call. A test of
// the agent runs all calls and compares them with the resulting requests to the API server. A call
// without rights is answered from the agent's caches.
func Calls() map[string][]Right {
	bounds := []string{"resourcequotas", "limitranges", "networkpolicies.networking.k8s.io"}
	admitted := on(namespaces, "get")
	// A spec that the reconciler has not come to is kept before another replaces it.
	unseen := on(revisions, "list", "create", "delete")
	run := append([]Right{on("jobs.batch", "get", "create"), on(apps, "get", "create", "update")}, unseen)
	locked := []string{"get", "create", "update", "delete"} // which command runs on a release
	nodes := []Right{on("nodes", "list"), on("nodes.metrics.k8s.io", "list"), on("pods", "list")}
	cordon := append(slices.Clone(nodes), forNodes("nodes", "patch"))
	return map[string][]Right{
		"list-nodes":       nodes,
		"get-node":         append(slices.Clone(nodes), forNodes("events", "list")),
		"cordon-node":      cordon,
		"uncordon-node":    cordon,
		"drain-node":       append(slices.Clone(cordon), forNodes("pods/eviction", "create")),
		"get-join-command": {on("nodes", "list")},
		"get-join-token":   nil,
		"kubernetes-api":   {forUsers("users", "impersonate"), forUsers("groups", "impersonate")},
		"list-events":      {admitted, on("events", "list")},

		"put-source":      {admitted, forSources(sources, "get", "create", "update")},
		"get-source":      {admitted, forSources(sources, "get")},
		"sync-source":     {admitted, forSources(sources, "patch")},
		"rollback-source": {admitted, forSources(sources, "get", "update")},
		"delete-source":   {admitted, forSources(sources, "get", "delete")},
		"list-sources":    {admitted, forSources(sources, "list")},

		"approve-promotion":    {admitted, forSources(sources, "get", "update")},
		"approve-preview":      {admitted, forSources(sources, "get", "update")},
		"list-source-previews": {admitted, forSources(sources, "get"), on(apps, "get")},

		"get-cluster":     {on("nodes", "list"), on("nodes.metrics.k8s.io", "list"), on("pods", "list")},
		"list-namespaces": {on(namespaces, "list"), on(apps, "list")},
		"get-namespace":   append(onEach(bounds, "get"), on(bounds[2], "list"), admitted, on(apps, "list")),
		"put-namespace": append(onEach(bounds, "get", "create", "patch", "delete"), on(bounds[2], "list"),
			on(namespaces, "get", "create", "patch"), on("rolebindings.rbac.authorization.k8s.io", "get", "create"), on(apps, "list")),
		"delete-namespace": {on(namespaces, "get", "delete"), on(apps, "list", "delete")},

		"put-secret":    {admitted, on("secrets", "get", "create", "update"), on("configmaps", "get"), on(apps, "get", "patch")},
		"get-secret":    {admitted, on("secrets", "get")},
		"delete-secret": {admitted, on("secrets", "get", "delete")},
		"list-secrets":  {admitted, on("secrets", "list")},

		"put-config-map":    {admitted, on("configmaps", "get", "create", "update"), on("secrets", "get"), on(apps, "get", "patch")},
		"get-config-map":    {admitted, on("configmaps", "get")},
		"delete-config-map": {admitted, on("configmaps", "get", "delete")},
		"list-config-maps":  {admitted, on("configmaps", "list")},

		// Beside what the manifests are: those of the example stand for others.
		"apply-manifests": {
			admitted, on("configmaps", "get", "create", "update", "patch", "delete"), on("secrets", "get", "create", "patch"),
			on("services", "get", "create", "patch"), on("deployments.apps", "get", "create", "patch"),
			on("pods", "list"), on("replicasets.apps", "list"), on("events", "list"),
		},
		"list-sets": {admitted, on("configmaps", "list")},
		"get-set": {
			admitted, on("configmaps", "get"), on("secrets", "get"), on("services", "get"), on("deployments.apps", "get"),
			on("pods", "list"), on("replicasets.apps", "list"), on("events", "list"),
		},
		"delete-set": {
			admitted, on("configmaps", "get", "delete"), on("secrets", "get", "delete"),
			on("services", "get", "delete"), on("deployments.apps", "get", "delete"), on("pods", "list"),
		},

		"put-app": append(onEach(kinds[:len(kinds)-1], "get", "create", "patch"),
			on("jobs.batch", "get", "create"), on(apps, "get", "create", "update"), unseen),
		"get-app":                 {on(apps, "get")},
		"list-apps":               nil,
		"list-routes":             nil,
		"list-namespace-apps":     nil,
		"delete-app":              {on(apps, "get", "delete")},
		"scale-app":               {on(apps, "get", "patch"), unseen},
		"restart-app":             {on(apps, "get", "patch")},
		"pause-app":               {on(apps, "get", "patch"), unseen},
		"resume-app":              {on(apps, "get", "patch"), unseen},
		"list-app-revisions":      {on(apps, "get"), on(revisions, "list")},
		"rollback-app":            {on(apps, "get", "update"), unseen},
		"get-app-events":          {on(apps, "get")},
		"get-app-logs":            {on("pods/log", "get"), on("services", "list")},
		"get-app-traffic":         {on(apps, "get"), own(revisions, "list")},
		"get-app-access-log":      {on(apps, "get")},
		"exec-app":                {on("pods/exec", "create")},
		"port-forward-app":        {on("pods/portforward", "get")},
		"get-app-metrics":         {on("pods.metrics.k8s.io", "list"), on("services", "list")},
		"get-app-metrics-history": {on("services", "list")},
		"get-cost":                {on("services", "list")},
		"get-namespace-cost":      {on("services", "list")},
		"list-alerts":             {on("services", "list")},
		"list-namespace-alerts":   {on("services", "list")},
		"put-build": {admitted, on("secrets", "get"), on("configmaps", "get"), on("jobs.batch", "list", "create", "delete"),
			on("pods", "list"), on("events", "list"), on("pods/log", "get")},
		"get-build":    {admitted, on("jobs.batch", "list"), on("pods", "list"), on("events", "list"), on("pods/log", "get")},
		"list-builds":  {admitted, on("jobs.batch", "list"), on("pods", "list")},
		"build-logs":   {admitted, on("jobs.batch", "list"), on("pods", "list"), on("pods/log", "get")},
		"delete-build": {admitted, on("jobs.batch", "list", "delete")},
		// What a chart itself brings needs rights besides: docs/deployer/helm-releases.md.
		"put-release":          {admitted, on("configmaps", locked...), on("secrets", "get", "list", "create", "update", "delete")},
		"get-release":          {admitted, on("configmaps", "get"), on("secrets", "get", "list")},
		"list-releases":        {admitted, on("secrets", "get", "list")},
		"list-release-history": {admitted, on("secrets", "get", "list")},
		"rollback-release":     {admitted, on("configmaps", "get", "update"), on("secrets", "get", "list", "create", "update", "delete")},
		"delete-release":       {admitted, on("configmaps", "get", "update", "delete"), on("secrets", "get", "list", "update", "delete")},

		"put-job":           run,
		"get-job":           {on(apps, "get")},
		"list-jobs":         nil,
		"get-job-logs":      {on("pods/log", "get")},
		"delete-job":        {on(apps, "get", "delete")},
		"put-pipeline":      run,
		"get-pipeline":      {on(apps, "get")},
		"list-pipelines":    nil,
		"get-pipeline-logs": {on("pods/log", "get")},
		"delete-pipeline":   {on(apps, "get", "delete")},

		"get-operation": {own(revisions, "get"), on(apps, "get")},
		"list-audit":    {own(revisions, "get", "list")},
	}
}

// Upkeeps returns the rights that the agent uses without being called, or for many calls alike.
func Upkeeps() []Upkeep {
	watched := append([]string{apps, namespaces, "pods", "replicasets.apps"}, kinds...)
	return []Upkeep{
		{"each write: that it was sent, and what became of it", []Right{own(revisions, "get", "list", "create", "patch", "delete")}},
		{"the audit log", []Right{own(revisions, "get", "list", "create", "delete")}},
		{"recordings of exec sessions, where the policy has them", []Right{own(revisions, "get", "list", "create", "delete")}},
		{"figures of public requests, for all replicas and the dashboard", []Right{own(revisions, "list", "create", "delete")}},
		{"commands that wait for an approval, where the policy has them", []Right{own(revisions, "get", "list", "create", "delete")}},
		{"the key of digests and idempotency keys", []Right{own("secrets", "get", "create")}},
		{"watching Apps and what they became; reads are answered from that", onEach(watched, "list", "watch")},
		{"watching HTTPRoutes, what they may lead to and their Gateways, where the cluster has the Gateway API", onEach(gatewayAPI, "list", "watch")},
		{"the status of GatewayClasses of `pipeops.io/gateway`, of their Gateways, and of the HTTPRoutes that name these", onEach(gatewayStatus, "patch")},
		{"making what Apps ask for, and putting it back", append(onEach(kinds, "get", "create", "patch", "delete"),
			on(apps, "get", "update", "patch"), on(apps+"/status", "patch"), on(revisions, "list", "create", "delete"))},
		{"`restartOn`: what Apps use", []Right{on("secrets", "get"), on("configmaps", "get")}},
		{"diagnosis of Apps, sets and releases: why pods are not created, what probes got, which nodes are lost, what an init container writes that hangs. Also whether a missing Secret is there by now", []Right{
			on("events", "list", "watch"), on("nodes", "list"), on("pods", "list"), on("replicasets.apps", "list"), on("jobs.batch", "list"), on("pods/log", "get"),
			on("secrets", "get"), on("configmaps", "get"),
		}},
		{"whether Apps are served: the classes of their Ingresses, and of which type their TLS Secrets are", []Right{
			on("ingressclasses.networking.k8s.io", "list"), on("secrets", "get"),
		}},
		{"the declared TCP ports that no probe looks at, where the agent does not reach the pods itself", []Right{
			on("pods/portforward", "get"),
		}},
		{"a StatefulSet that waits for a broken pod", []Right{on("pods", "delete")}},
		{"drift that was put back", []Right{on("events", "create")}},
		{"following Git repositories, where it is turned on", []Right{
			forSources(sources, "get", "list", "watch"), forSources(sources+"/status", "patch"), on("secrets", "get"), on(namespaces, "get"),
		}},
		{"building images for Git repositories, where both are turned on", []Right{
			on("jobs.batch", "list", "create", "delete"), on("secrets", "get"), on("configmaps", "get"),
			on("pods", "list"), on("events", "list"), on("pods/log", "get"), on(namespaces, "get"),
		}},
		{"right-sizing", []Right{on("pods.metrics.k8s.io", "list"), on("pods/resize", "patch"), on("events", "create")}},
		{"heartbeats: figures of the cluster", []Right{on("nodes", "list"), on("nodes.metrics.k8s.io", "list"), on("pods", "list"), on(namespaces, "get")}},
		{"heartbeats: how the components of the cluster are", []Right{
			on("deployments.apps", "list"), on("statefulsets.apps", "list"), on("daemonsets.apps", "list"), on("replicasets.apps", "list"), on("pods", "list"), on("nodes", "list"),
		}},
		{"at the start: is the App resource the one that is needed", []Right{on("customresourcedefinitions.apiextensions.k8s.io", "get")}},
		{"who the agent is", []Right{own("secrets", "get", "create", "update")}},
		{"once it is registered: removing the enrolment token from its Secret", []Right{own("secrets", "get", "patch")}},
		{"the policy of the cluster's owner", []Right{own("configmaps", "list", "watch")}},
		{"which replica leads", []Right{own("leases.coordination.k8s.io", "get", "create", "update")}},
		{"ends of Apps that are still to be announced", []Right{own("configmaps", "get", "create", "update")}},
		Asked(),
	}
}

// Asked returns rights for which the agent sends no request. The API server requires them for owner
// references that block a deletion, for binding a role, and for reaching into a pod by a GET, which
// is how a WebSocket begins. A command begins this way only if the API server does not support
// SPDY.
func Asked() Upkeep {
	return Upkeep{"wanted by the API server for owner references, role bindings and WebSockets", []Right{
		on(apps+"/finalizers", "update"), on("clusterroles.rbac.authorization.k8s.io", "bind"),
		on("pods/exec", "get"), on("pods/portforward", "create"),
	}}
}
