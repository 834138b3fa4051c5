package link

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// proxyName begins the name of an agent's proxy. frp prefixes it with the user, which is
// the agent's ID.
const proxyName = "agent"

// MetaCluster is the key, in a login's metadata, of the agent's cluster's UID.
const MetaCluster = "cluster"

// instance is what a replica of an agent may be called: a host's or a pod's name.
var instance = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// ValidInstance reports whether a replica may have this name. Without a name it is the agent's only
// one.
func ValidInstance(name string) bool { return name == "" || instance.MatchString(name) }

// RunID returns FRP's name for a client instance: a replica of an agent. It is the same for every
// connection of one instance, so a returning instance takes over from its lost connection at once.
// It is a digest because frp limits it to 64 characters. The instance follows the last NUL, so that
// no two pairs have the same one.
func RunID(agentID, instance string) string {
	sum := sha256.Sum256([]byte(agentID + "\x00" + instance))
	return hex.EncodeToString(sum[:16])
}

// LocalProxyName returns the proxy's name for frpc. Instances have their own proxies, because in
// frps a name belongs to one proxy.
func LocalProxyName(agentID, instance string) string {
	if instance == "" {
		return proxyName
	}
	return proxyName + "-" + RunID(agentID, instance)
}

// ProxyName returns the proxy's name on the wire. Its last label has no dots, so agents cannot
// share a name.
func ProxyName(agentID, instance string) string {
	return agentID + "." + LocalProxyName(agentID, instance)
}
