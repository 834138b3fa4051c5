package controlapi

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// RegisterRequest asks for an identity. It is sent once, with an enrolment token as the bearer. If
// the answer was lost, sending it again with the same key does not take another use of the token.
// So store the key first.
type RegisterRequest struct {
	Name              string            `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"Name the cluster is to be known by (CLUSTER_NAME)."`
	ClusterUID        string            `json:"clusterUID" minLength:"1" maxLength:"128" pattern:"^[!-~]*$" doc:"UID of the namespace kube-system: the same cluster gets the same agent ID again."`
	CSR               string            `json:"csr" minLength:"1" maxLength:"16384" doc:"PEM certificate request, signed with the agent's new key. Its subject and names are ignored."`
	Labels            map[string]string `json:"labels,omitempty" maxProperties:"64"`
	AgentVersion      string            `json:"agentVersion" maxLength:"128" pattern:"^[ -~]*$"`
	RunnerAPIVersion  string            `json:"runnerApiVersion" maxLength:"32" pattern:"^[ -~]*$"`
	Clock             time.Time         `json:"clock" doc:"The agent's clock when it sent this."`
	KubernetesVersion string            `json:"kubernetesVersion,omitempty" maxLength:"128" pattern:"^[ -~]*$"`
	Distribution      string            `json:"distribution,omitempty" maxLength:"64" pattern:"^[ -~]*$"`
	Provider          string            `json:"provider,omitempty" maxLength:"64" pattern:"^[ -~]*$"`
	Capacity          Capacity          `json:"capacity,omitzero" doc:"So that the first announcement of the agent is complete."`
}

// Identity is an agent's identity: the answer to register and renew.
type Identity struct {
	AgentID     string `json:"agentId" doc:"Stable ID, also the first label of the agent's server name."`
	Certificate string `json:"certificate" doc:"PEM: the leaf, then what is needed to reach the CA."`
	CABundle    string `json:"caBundle" doc:"PEM: the CAs that the agent trusts for the control plane, frps and Runners."`
	// Tunnel says where the FRP tunnel goes.
	Tunnel TunnelEndpoint `json:"tunnel"`
	// Tunnels are the frps nodes to keep a tunnel to, the best first; empty where there
	// is only Tunnel.
	Tunnels           []TunnelEndpoint `json:"tunnels,omitempty" doc:"The frps nodes to keep a tunnel to, the best first; absent where there is only the one."`
	ServerName        string           `json:"serverName" doc:"AGENT_ID.AGENTS_DOMAIN, the name in the certificate."`
	TrustDomain       string           `json:"trustDomain" doc:"SPIFFE trust domain of agents and Runners."`
	HeartbeatInterval int              `json:"heartbeatIntervalSeconds" doc:"Seconds between heartbeats while nothing changes."`
	FormerCAs         string           `json:"formerCas,omitempty" doc:"PEM: CAs that were trusted before. An enrolment token may name one of them still."`
}

// TokenState is what an enrolment token allows. The token's holder can request it, so that an
// operator can find a mistake before an agent registers.
type TokenState struct {
	ID        string          `json:"id"`
	ExpiresAt time.Time       `json:"expiresAt,omitzero" doc:"Absent when it does not expire."`
	UsesLeft  *int            `json:"usesLeft,omitempty" doc:"Registrations that it is good for still; absent for any number."`
	Tunnel    TunnelEndpoint  `json:"tunnel" doc:"Where an agent's tunnel will go."`
	Approval  bool            `json:"approval,omitempty" doc:"Registrations with it wait for an operator's approval."`
	Enrolment *EnrolmentState `json:"enrolment,omitempty" doc:"How what was asked with this token and the key of the check stands; absent when nothing was."`
}

// TokenCheck may name a key by its fingerprint.
type TokenCheck struct {
	Key string `json:"key,omitempty" maxLength:"64" doc:"SHA-256 of the public key (SPKI) that was asked with, in hexadecimal."`
}

// EnrolmentState is the state of a registration that an operator decides on.
type EnrolmentState struct {
	ID     string `json:"id" doc:"What the operator approves or denies."`
	State  string `json:"state" enum:"pending,approved,denied"`
	Reason string `json:"reason,omitempty" doc:"Why it was denied, if the operator said so."`
}

// TunnelEndpoint is a frps that the agent keeps a tunnel to.
type TunnelEndpoint struct {
	Address    string `json:"address" doc:"host:port of the FRP listener."`
	ServerName string `json:"serverName" doc:"Name in the FRP listener's certificate."`
}

// RenewRequest asks for a new certificate, for the same key or a new one. It is sent with the
// current certificate in TLS, or, when that has expired, without one: then OldCertificate and Proof
// show that the sender holds the old key.
type RenewRequest struct {
	CSR            string    `json:"csr" minLength:"1" maxLength:"16384"`
	Clock          time.Time `json:"clock"`
	OldCertificate string    `json:"oldCertificate,omitempty" maxLength:"16384" doc:"PEM of the expired certificate."`
	Proof          string    `json:"proof,omitempty" maxLength:"1024" doc:"base64 signature by the old key over RecoveryMessage(CSR, Clock)."`
}

// Heartbeat reports that the agent is alive, and the state of its cluster.
type Heartbeat struct {
	Clock             time.Time   `json:"clock"`
	AgentVersion      string      `json:"agentVersion" maxLength:"128" pattern:"^[ -~]*$"`
	RunnerAPIVersion  string      `json:"runnerApiVersion" maxLength:"32" pattern:"^[ -~]*$"`
	KubernetesVersion string      `json:"kubernetesVersion" maxLength:"128" pattern:"^[ -~]*$"`
	Distribution      string      `json:"distribution" maxLength:"64" pattern:"^[ -~]*$"`
	Provider          string      `json:"provider,omitempty" maxLength:"64" pattern:"^[ -~]*$"`
	Capacity          Capacity    `json:"capacity"`
	TunnelPhase       string      `json:"tunnelPhase" maxLength:"32" pattern:"^[ -~]*$" doc:"The tunnel as the agent sees it."`
	Standby           bool        `json:"standby,omitempty" doc:"Another replica of the agent leads and reports the state of the cluster. This one reports only that it is alive."`
	CABundleHash      string      `json:"caBundleHash,omitempty" maxLength:"64" pattern:"^[!-~]*$" doc:"SHA-256 of the CA bundle that this replica trusts, in hexadecimal. Agents send it to control planes that send their own."`
	Instance          string      `json:"instance,omitempty" maxLength:"253" pattern:"^[!-~]*$" doc:"Name of the replica."`
	Process           string      `json:"process,omitempty" maxLength:"64" pattern:"^[!-~]*$" doc:"Random, made when the process started."`
	Ticket            string      `json:"ticket,omitempty" maxLength:"64" pattern:"^[!-~]*$" doc:"Ticket of the last answer that the process got; absent before the first. It distinguishes two copies of one machine."`
	Components        []Component `json:"components,omitempty" maxItems:"16" doc:"The installed components of the cluster."`
	Checks            *Checks     `json:"checks,omitempty" doc:"What the agent's own checks found last; absent before the first. A standby reports only that the Kubernetes API does not answer."`
	RevokedRunners    []string    `json:"revokedRunners,omitempty" maxItems:"100" doc:"Serial numbers of the last answer. A control plane that was restored from a backup finds in them what was revoked since."`
	RevokedAgents     []string    `json:"revokedAgents,omitempty" maxItems:"100" doc:"Those of the last answer, for the same purpose."`
	AcknowledgedLooks int64       `json:"acknowledgedLooks,omitempty" minimum:"0" doc:"The highest number of the looks in the last answer, once the agent has requested all of them in the cluster."`
	LastEvents        *Leadership `json:"lastEvents,omitempty" doc:"The last call with events that was accepted from this replica; absent for none."`
	Update            *Update     `json:"update,omitempty" doc:"How the agent's update of itself stands; absent where the customer has not turned that on, and nothing is offered then."`
}

// MaxRevokedRunners bounds the serial numbers in a heartbeat.
const MaxRevokedRunners = 100

// MaxRevokedAgents bounds the revoked agents in a heartbeat and in its answer.
const MaxRevokedAgents = 100

// AgentPrint identifies an agent to other agents, which must not learn its ID: the first 8 bytes of
// its SHA-256, in hexadecimal.
func AgentPrint(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// MaxComponents bounds the components in a heartbeat.
const MaxComponents = 16

// Component is how an installed component of the cluster is.
type Component struct {
	Name    string `json:"name" minLength:"1" maxLength:"32" pattern:"^[a-z0-9-]*$"`
	Version string `json:"version" maxLength:"64" pattern:"^[ -~]*$" doc:"Of its first chart."`
	Ready   bool   `json:"ready"`
	Cause   string `json:"cause,omitempty" maxLength:"64" pattern:"^[ -~]*$" doc:"The first cause by which it is not ready; absent while it only starts."`
	Message string `json:"message,omitempty" maxLength:"512" doc:"What is wrong, or what it waits for."`
}

// The bounds of the findings in a heartbeat.
const (
	MaxFindings      = 16
	MaxFindingDetail = 512
)

// Checks is what the checks of `pipeops-agent doctor` found that a running agent repeats.
type Checks struct {
	Findings []Finding `json:"findings,omitempty" maxItems:"16" doc:"What failed or is a warning, failures first; none if all is well."`
}

// Finding is a check that failed, or a warning of one.
type Finding struct {
	Check  string `json:"check" minLength:"1" maxLength:"32" pattern:"^[a-z-]*$"`
	Status string `json:"status" enum:"failed,warning"`
	Detail string `json:"detail" minLength:"1" maxLength:"512"`
	Fix    string `json:"fix,omitempty" maxLength:"512"`
}

// Capacity is what the cluster has and uses, summed over all nodes. Used
// figures are absent where the cluster has no metrics API.
type Capacity struct {
	Nodes           int    `json:"nodes"`
	ReadyNodes      int    `json:"readyNodes"`
	Pods            int64  `json:"pods" doc:"Pods that the nodes together take."`
	RunningPods     int    `json:"runningPods"`
	CPUMillis       int64  `json:"cpuMillis" doc:"Allocatable CPU in thousandths of a core."`
	MemoryBytes     int64  `json:"memoryBytes" doc:"Allocatable memory in bytes."`
	UsedCPUMillis   *int64 `json:"usedCpuMillis,omitempty"`
	UsedMemoryBytes *int64 `json:"usedMemoryBytes,omitempty"`
}

// HeartbeatAnswer carries what the control plane requests of the agent.
type HeartbeatAnswer struct {
	IntervalSeconds int `json:"intervalSeconds" doc:"Seconds until the next heartbeat while nothing changes."`
	// RevokedRunners lets the agent refuse a Runner whose certificate was revoked
	// before its end: the agent is the one who ends the Runner's TLS.
	RevokedRunners []string `json:"revokedRunners,omitempty" doc:"Serial numbers, in hexadecimal, of Runner certificates to refuse though they have not expired."`
	// RevokedAgents lets a control plane that was restored from a backup learn what was revoked
	// since.
	RevokedAgents []string `json:"revokedAgents,omitempty" doc:"The agents that were revoked last, as hashes of their IDs. The agent sends them back with its next heartbeat."`
	// ResendApps follows a restore from a backup that does not have the agent's last events.
	ResendApps bool `json:"resendApps,omitempty" doc:"The agent's last events are lost: it sends the current states of its Apps."`
	// RevokedRunnerNames lets the agent suspend what continues in the name of a Runner. One that
	// was given another certificate since is not among them.
	RevokedRunnerNames []string `json:"revokedRunnerNames,omitempty" doc:"Runners whose newest certificate was revoked: Git sources that they put are suspended."`
	// Labels are held against what Runners are granted, by the agent too.
	Labels map[string]string `json:"labels,omitempty" doc:"The agent's labels as the control plane has them: Runners whose certificates are for agents with other labels are to be refused."`
	// Looks come of push events of Git servers. A look changes nothing by itself:
	// the agent gets the commit from the repository, as at each interval.
	Looks []Look `json:"looks,omitempty" doc:"Git sources whose repositories the agent is to look at now. They come again until the agent has acknowledged them."`
	// Console is where links in the agent's reports to Git servers go.
	Console string `json:"console,omitempty" doc:"Address of the console for browsers."`
	// VisitorSignIn is where agents send visitors of Apps whose route has them sign in here.
	VisitorSignIn *VisitorSignIn `json:"visitorSignIn,omitempty" doc:"How visitors of Apps sign in at the operator's identity provider; absent where there is none."`
	// Ticket lets the control plane notice that two processes go by one name.
	Ticket string `json:"ticket,omitempty" doc:"To be sent with the next heartbeat."`
	// CABundleHash is told always, CAs to a replica that reported another hash.
	CABundleHash string `json:"caBundleHash,omitempty" doc:"SHA-256 of the CA bundle to be trusted now, in hexadecimal."`
	CAs          *CAs   `json:"cas,omitempty" doc:"What to trust from now on; absent when the agent does."`
	// Tunnels may change at any heartbeat: nodes come and go.
	Tunnels []TunnelEndpoint `json:"tunnels,omitempty" doc:"The frps nodes to keep a tunnel to from now on, the best first; absent where there is only the one of the identity."`
	// RenewWithin keeps many agents from renewing at a time: each takes a moment in it.
	RenewWithin int `json:"renewWithinSeconds,omitempty" doc:"Renew the certificate within so many seconds, at a moment of the agent's choice: another CA signs now. Absent when there is no need."`
	// Offer is for agents that say how their update stands; whether it is taken is
	// theirs to decide.
	Offer *Offer `json:"offer,omitempty" doc:"Release that the agent may update itself to; absent when none is offered, or not any more."`
}

// MaxLooks bounds the looks in an answer. The others are in the next.
const MaxLooks = 100

// Look is a request to look at the repository of a Git source.
type Look struct {
	Number    int64  `json:"number" doc:"Grows with each look that is requested of the agent."`
	Namespace string `json:"namespace"`
	Source    string `json:"source"`
	Runner    string `json:"runner" doc:"The Runner that gave the Git server an address for pushes: the source is the one that it put, or may sync."`
	Commit    string `json:"commit,omitempty" doc:"The commit that was pushed, if the Git server named one."`
}

// Event is something that happened on the agent's side. Sending the same ID
// again is harmless.
type Event struct {
	ID   string    `json:"id" minLength:"1" maxLength:"128" pattern:"^[!-~]*$" doc:"Unique for this agent; the same event keeps its ID when it is sent again."`
	Type string    `json:"type" enum:"app.progressing,app.healthy,app.degraded,app.failed,app.removed,alert.firing,alert.resolved"`
	Time time.Time `json:"time"`
	// App is there for app.* types, and Alert for alert.* types.
	App   *AppEvent   `json:"app,omitempty"`
	Alert *AlertEvent `json:"alert,omitempty"`
}

// AppEvent is the new state of an App.
type AppEvent struct {
	Namespace  string `json:"namespace" minLength:"1" maxLength:"63" pattern:"^[!-~]*$"`
	Name       string `json:"name" minLength:"1" maxLength:"253" pattern:"^[!-~]*$"`
	Image      string `json:"image,omitempty" maxLength:"512" pattern:"^[!-~]*$"`
	Generation int64  `json:"generation"`
	Replicas   int32  `json:"replicas"`
	Ready      int32  `json:"ready"`
	LastRun    string `json:"lastRun,omitempty" maxLength:"64" pattern:"^[ -~]*$"`
	Cause      string `json:"cause,omitempty" maxLength:"64" pattern:"^[ -~]*$"`
	Message    string `json:"message,omitempty" maxLength:"4096"`
	Fix        string `json:"fix,omitempty" maxLength:"4096"`
}

// AuditRequest contains records of the agent's audit log, each as the agent stores it, in order.
// Without records it asks which record the control plane has last.
type AuditRequest struct {
	Lines []string `json:"lines,omitempty" maxItems:"64"`
	// Broken admits records that do not follow those that the control plane has:
	// what came between is gone. It is noted.
	Broken bool `json:"broken,omitempty" doc:"The agent no longer has what the control plane waits for."`
}

// AuditAnswer is the last record that the control plane has.
type AuditAnswer struct {
	Seq  int64  `json:"seq" doc:"Its number; 0 for none."`
	Hash string `json:"hash" doc:"Its SHA-256."`
}

// Leadership identifies the leadership of one replica among all in the agent's cluster: the Lease
// by which the replicas elect their leader, and how often it has changed hands.
type Leadership struct {
	Lease string `json:"lease" minLength:"1" maxLength:"64" pattern:"^[!-~]*$" doc:"The Lease's UID."`
	Term  int64  `json:"term" minimum:"0" doc:"The Lease's leaseTransitions."`
	// Call orders what one replica sends: a call that it gave up may arrive after the next.
	Call int64 `json:"call" minimum:"1" doc:"Which of the term's calls this is: more than the one before."`
	// After detects that the control plane was restored from a backup.
	After int64 `json:"after,omitempty" minimum:"0" doc:"The last of the term's calls that was accepted. A control plane that does not know it refuses this one: the agent then sends the current states of its Apps."`
}

// EventsRequest sends events in the order in which they happened. Without events it announces the
// leader, before that one reads what it will report. So the control plane accepts no former
// leader's events in between.
type EventsRequest struct {
	// Leader is whose events they are. What comes late of a leader that was followed by another
	// is refused: the next one has told what became of it. So is what comes late of its own, after
	// a later call. Without, nothing is known of that.
	Leader *Leadership `json:"leader,omitempty" doc:"The leadership under which they are sent. When a later one, or a later call of it, was heard they are refused."`
	Events []Event     `json:"events,omitempty" maxItems:"256" doc:"None, for the leadership to be known."`
	// Current is set if the events are current states, after a control plane lost events.
	Current *AppRange `json:"current,omitempty" doc:"The events are the current states of all Apps in this range. Those that are known are ignored, and Apps that are missing have ended."`
}

// AppRange is a range of Apps in the order of NAMESPACE/NAME.
type AppRange struct {
	After   string `json:"after,omitempty" maxLength:"317" doc:"NAMESPACE/NAME before the first App; absent for the beginning."`
	Through string `json:"through,omitempty" maxLength:"317" doc:"NAMESPACE/NAME of the last App; absent for the end."`
}

// Has reports whether an App is in the range.
func (r AppRange) Has(namespace, name string) bool {
	key := namespace + "/" + name
	return key > r.After && (r.Through == "" || key <= r.Through)
}
