package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

const (
	nodeServer = "server"
	nodeWorker = "agent"
)

// maxKubernetesStreams is where the agent's calls end too: each stream is one.
const maxKubernetesStreams = 1024

// maxStabilization bounds how long a deploy waits for nothing to happen.
const maxStabilization = time.Hour

var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// name returns what an operator looks for when a setting is wrong.
func (s setting) name() string { return s.env }

// check finds everything that is wrong with the values themselves. Whether a
// token is needed is known only when the identity was looked for.
func (c *Config) check() (errs []error) {
	wrong := func(env, fix, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s (fix: %s)", env, fmt.Sprintf(format, args...), fix))
	}
	switch u, err := url.Parse(c.ControlPlaneURL); {
	case c.ControlPlaneURL == "":
		wrong("PIPEOPS_CONTROL_PLANE_URL", "set it to the URL that `pipeops-controlplane serve` advertises, or AGENT_TOKEN to a token, which carries it", "is not set")
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil:
		wrong("PIPEOPS_CONTROL_PLANE_URL", "write it as https://HOST[:PORT]", "is not an https URL without user and password")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		wrong("PIPEOPS_CONTROL_PLANE_URL", "write it as https://HOST[:PORT]", "has a path, query or fragment")
	}
	switch {
	case c.ClusterName == "":
		wrong("CLUSTER_NAME", "choose a name, e.g. prod-1", "is not set")
	case !clusterName.MatchString(c.ClusterName):
		wrong("CLUSTER_NAME", "use a-z, 0-9 and -, starting and ending with a letter or digit, at most 63",
			"%q cannot be a cluster's name", c.ClusterName)
	}
	if _, _, err := net.SplitHostPort(c.HealthAddress); err != nil {
		wrong("PIPEOPS_HEALTH_ADDRESS", "write it as [HOST]:PORT, e.g. :8080", "%q is not an address", c.HealthAddress)
	}
	for env, address := range map[string]string{"PIPEOPS_METRICS_ADDRESS": c.MetricsAddress, "PIPEOPS_PPROF_ADDRESS": c.PprofAddress} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			wrong(env, "write it as [HOST]:PORT, e.g. 127.0.0.1:9090, or leave it out", "%q is not an address", address)
		}
	}
	if c.MetricsOnDemand && c.AlertsTokenFile == "" {
		wrong("PIPEOPS_METRICS_ON_DEMAND", "set PIPEOPS_ALERTS_TOKEN_FILE to the file that it waits for", "is set without such a file")
	}
	if _, err := zerolog.ParseLevel(c.LogLevel); err != nil || c.LogLevel == "" {
		wrong("LOG_LEVEL", "use trace, debug, info, warn or error", "%q is not a level", c.LogLevel)
	}
	if c.Stabilization < 0 || c.Stabilization > maxStabilization {
		wrong("PIPEOPS_STABILIZATION", "use 30s", "%s is not between 0s and %s", c.Stabilization, maxStabilization)
	}
	if c.Namespace == "" {
		wrong("POD_NAMESPACE", "set it to the agent's namespace, e.g. pipeops", "is not set")
	}
	if problems := validation.IsDNS1123Subdomain(c.TokenSecret); c.TokenSecret != "" && len(problems) > 0 {
		wrong("PIPEOPS_TOKEN_SECRET", "name the Secret that AGENT_TOKEN comes from, e.g. pipeops-agent", "%q cannot be a Secret's name", c.TokenSecret)
	}
	manageable := func(setting string, names []string) {
		for _, name := range names {
			if problems := validation.IsDNS1123Label(name); len(problems) > 0 || objectmeta.ReservedNamespace(name, c.Namespace) {
				wrong(setting, "name namespaces of your own, e.g. shop,shop-staging", "%q cannot be managed", name)
			}
		}
	}
	manageable("PIPEOPS_NAMESPACES", c.Namespaces)
	if c.source["firstNamespaces"] != fromDefault { // the default may be the agent's own namespace
		manageable("PIPEOPS_FIRST_NAMESPACES", c.FirstNamespaces)
	}
	switch c.NodeType {
	case nodeServer:
	case nodeWorker:
		wrong("NODE_TYPE", "run the agent on the server; a worker only joins the cluster", "a worker needs no agent of its own")
	default:
		wrong("NODE_TYPE", "use server or agent", "%q is not a node type", c.NodeType)
	}
	if c.KubernetesStreams < 1 || c.KubernetesStreams > maxKubernetesStreams {
		wrong("PIPEOPS_KUBERNETES_STREAMS", fmt.Sprintf("use a number from 1 to %d", maxKubernetesStreams), "is out of range")
	}
	return append(errs, c.checkUpdate()...)
}
