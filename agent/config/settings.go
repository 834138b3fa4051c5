// Package config is the agent's configuration: where each setting comes from,
// what is wrong with it, and how it is shown without its secrets.
package config

// A setting is one row of the agent's configuration. The rows make the flags,
// the environment variables, the keys of the file and their documentation.
type setting struct {
	key    string // key in the --config file
	env    string // environment variable
	flag   string // flag without dashes; empty for what must not be in process arguments
	def    string
	usage  string
	secret bool
	field  func(*Config) any // *string, *[]string, *bool or *time.Duration
}

// Precedence, highest first: flag, environment, --config file, default.
var settings = []setting{
	{key: "controlPlaneUrl", env: "PIPEOPS_CONTROL_PLANE_URL", flag: "control-plane-url",
		usage: "URL of the control plane, https://HOST[:PORT]",
		field: func(c *Config) any { return &c.ControlPlaneURL }},
	{key: "token", env: "AGENT_TOKEN", secret: true,
		usage: "enrolment token; needed until the agent has an identity",
		field: func(c *Config) any { return &c.Token }},
	{key: "tokenFile", env: "AGENT_TOKEN_FILE", flag: "token-file",
		usage: "file that holds the enrolment token",
		field: func(c *Config) any { return &c.TokenFile }},
	{key: "clusterName", env: "CLUSTER_NAME", flag: "cluster-name",
		usage: "name the cluster is to be known by: a-z, 0-9 and -, at most 63",
		field: func(c *Config) any { return &c.ClusterName }},
	{key: "caFile", env: "PIPEOPS_CA_FILE", flag: "ca-file",
		usage: "PEM file of the CA that signed the control plane's certificate, when the token does not carry its fingerprint and the system does not trust it",
		field: func(c *Config) any { return &c.CAFile }},
	{key: "stateDir", env: "PIPEOPS_STATE_DIR", flag: "state-dir",
		usage: "directory for the agent's identity; when empty it is kept in a Secret of the cluster",
		field: func(c *Config) any { return &c.StateDir }},
	{key: "policyFile", env: "PIPEOPS_POLICY_FILE", flag: "policy-file",
		usage: "YAML file with the policy for Runners; when empty it is the ConfigMap pipeops-policy of the agent's namespace",
		field: func(c *Config) any { return &c.PolicyFile }},
	{key: "kubeconfig", env: "KUBECONFIG", flag: "kubeconfig",
		usage: "kubeconfig file; when empty the pod's service account is used",
		field: func(c *Config) any { return &c.Kubeconfig }},
	{key: "namespace", env: "POD_NAMESPACE", flag: "namespace", def: "pipeops",
		usage: "namespace that holds the agent's own objects",
		field: func(c *Config) any { return &c.Namespace }},
	{key: "namespaces", env: "PIPEOPS_NAMESPACES", flag: "namespaces",
		usage: "the only namespaces that the agent may see and manage, with commas between; when empty, those that carry its label",
		field: func(c *Config) any { return &c.Namespaces }},
	{key: "healthAddress", env: "PIPEOPS_HEALTH_ADDRESS", flag: "health-address", def: ":8080",
		usage: "address for /healthz and /readyz",
		field: func(c *Config) any { return &c.HealthAddress }},
	{key: "metricsAddress", env: "PIPEOPS_METRICS_ADDRESS", flag: "metrics-address",
		usage: "address of /metrics for Prometheus, plain HTTP, e.g. 127.0.0.1:9090; when empty there is none",
		field: func(c *Config) any { return &c.MetricsAddress }},
	{key: "pprofAddress", env: "PIPEOPS_PPROF_ADDRESS", flag: "pprof-address",
		usage: "address of /debug/pprof/ for whoever develops, plain HTTP; without a host it is 127.0.0.1; when empty there is none",
		field: func(c *Config) any { return &c.PprofAddress }},
	{key: "nodeType", env: "NODE_TYPE", flag: "node-type", def: nodeServer,
		usage: "server or agent, as k3s has it; a worker (agent) needs no PipeOps agent of its own",
		field: func(c *Config) any { return &c.NodeType }},
	{key: "k3sUrl", env: "K3S_URL", flag: "k3s-url",
		usage: "server that a worker joins; used by the installer, and told to Runners that ask how to join (docs/nodes.md)",
		field: func(c *Config) any { return &c.K3sURL }},
	{key: "k3sToken", env: "K3S_TOKEN", secret: true,
		usage: "token that a worker joins with; used by the installer, and given to Runners where the policy names get-join-token",
		field: func(c *Config) any { return &c.K3sToken }},
	{key: "enableIngressSync", env: "ENABLE_INGRESS_SYNC", flag: "enable-ingress-sync", def: "false",
		usage: "tell the control plane at which public hosts the Apps are served, by their Ingresses (docs/routes.md); it carries no traffic to them",
		field: func(c *Config) any { return &c.EnableIngressSync }},
	{key: "logLevel", env: "LOG_LEVEL", flag: "log-level", def: "info",
		usage: "trace, debug, info, warn or error",
		field: func(c *Config) any { return &c.LogLevel }},
	{key: "selfUpdate", env: "PIPEOPS_SELF_UPDATE", flag: "self-update", def: "false",
		usage: "take the releases that the control plane offers, once their signature is verified",
		field: func(c *Config) any { return &c.SelfUpdate }},
	{key: "updateWindow", env: "PIPEOPS_UPDATE_WINDOW", flag: "update-window",
		usage: "when the agent may update itself, e.g. Sat,Sun 02:00-04:00 Europe/Berlin; several with semicolons between, UTC without a time zone; when empty, at any time",
		field: func(c *Config) any { return &c.UpdateWindow }},
	{key: "updateKeys", env: "PIPEOPS_UPDATE_KEYS", flag: "update-keys",
		usage: "public keys of minisign, with commas between, by one of which a release has to be signed; when empty, those that the program was built with",
		field: func(c *Config) any { return &c.UpdateKeys }},
	{key: "updateMirror", env: "PIPEOPS_UPDATE_MIRROR", flag: "update-mirror",
		usage: "https URL of a folder with a folder for each version, from which releases are downloaded instead of where the control plane says",
		field: func(c *Config) any { return &c.UpdateMirror }},
	{key: "updateDeadline", env: "PIPEOPS_UPDATE_DEADLINE", flag: "update-deadline", def: "5m",
		usage: "how long a new version may take until it is registered and its tunnel is up, before it is rolled back",
		field: func(c *Config) any { return &c.UpdateDeadline }},
}
