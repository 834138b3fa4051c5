package controlapi

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// maxLabel bounds a label of a host name (RFC 1035).
const maxLabel = 63

// digestLength is that of the digest in the label of a given host, in characters of five bits each.
// An agent chooses its namespaces, so with fewer bits it could find one with the digest of another
// agent's App.
const digestLength = 16

// ProofGiven is the proof of a given host.
const ProofGiven = "given"

// GivenHost returns the host that an App has under the gateway's domain, without any other proof:
// APP-DIGEST.DOMAIN. The digest is of the agent's ID, the namespace and the App's name, so that no
// other App has the host. A name that would be too long for DNS is cut.
func GivenHost(app, namespace, agentID, domain string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(agentID) + "/" + namespace + "/" + app))
	digest := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))
	label := strings.ReplaceAll(app, ".", "-") // a dot would begin another label
	label = strings.TrimRight(label[:min(len(label), maxLabel-1-digestLength)], "-")
	return label + "-" + digest[:digestLength] + "." + domain
}

// ProofTarget returns the name to which a CNAME record has to lead so that an agent may serve a
// host.
func ProofTarget(agentID, domain string) string { return strings.ToLower(agentID) + "." + domain }

// The TXT record by which an agent may serve a host.
const (
	proofPrefix = "_pipeops."
	proofValue  = "pipeops-agent="
)

// ProofRecord returns the name and the value of the TXT record that proves that an agent may serve
// a host. A wildcard is proven at the domain below it.
func ProofRecord(agentID, host string) (name, value string) {
	return proofPrefix + strings.TrimPrefix(host, "*."), proofValue + strings.ToLower(agentID)
}

// DNSRecord is a DNS record that proves a host.
type DNSRecord struct{ Name, Type, Value string }

// String returns the record as people read it.
func (r DNSRecord) String() string {
	if r.Type == "CNAME" {
		return fmt.Sprintf("CNAME %s to %s", r.Name, r.Value)
	}
	return fmt.Sprintf("%s %s to %q", r.Type, r.Name, r.Value)
}

// WithinDomain reports whether a host is the gateway's domain, or below it. No DNS record of others
// proves such a host.
func WithinDomain(host, domain string) bool {
	return domain != "" && (host == domain || strings.HasSuffix(host, "."+domain))
}

// Proofs returns the DNS records of which each proves that an agent may serve a host; none for a
// host that no record proves.
func Proofs(agentID, host, domain string) (records []DNSRecord) {
	if domain == "" || WithinDomain(host, domain) {
		return nil
	}
	if !strings.HasPrefix(host, "*.") {
		records = append(records, DNSRecord{host, "CNAME", ProofTarget(agentID, domain)})
	}
	name, value := ProofRecord(agentID, host)
	return append(records, DNSRecord{name, "TXT", value})
}

// The states of the way to an App that is served.
const (
	ReachReady   = "ready"
	ReachPending = "pending"
	ReachFailed  = "failed" // the gateway tries again
)

// The states of a host's certificate.
const (
	CertificateReady   = "ready"
	CertificatePending = "pending"
	CertificateFailed  = "failed" // the gateway tries again
)

// The modes of a host.
const (
	ModeTunnel = "tunnel" // through the agent's tunnel
	ModeDirect = "direct" // to the endpoint
)

// HostStatus is whether an agent may serve a host that its routes name.
type HostStatus struct {
	Host   string `json:"host"`
	Served bool   `json:"served" doc:"The gateway serves the host from this agent."`
	Proof  string `json:"proof,omitempty" enum:"given,cname,txt,grant" doc:"What proves that the agent may serve it; absent while nothing does."`
	Reason string `json:"reason,omitempty" doc:"Why it is not served, has no certificate or is not reached, and what to do."`
	// Certificate is that of the gateway; empty for a host that is not served.
	Certificate string `json:"certificate,omitempty" enum:"ready,pending,failed"`
	Reach       string `json:"reach,omitempty" enum:"ready,pending,failed" doc:"Whether a request of the gateway to itself got the App's answer, with a valid certificate."`
	Mode        string `json:"mode,omitempty" enum:"tunnel,direct" doc:"How the gateway passes requests on."`
	ModeReason  string `json:"modeReason,omitempty" doc:"Why a host with an endpoint is in tunnel mode."`
}
