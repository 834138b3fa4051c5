package policy

import (
	"maps"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// retryAfter is when to ask again for what is about to be known.
const retryAfter = time.Second

// Document is a policy as its owner writes it, in YAML.
type Document struct {
	// Paused refuses every call of every Runner. Apps run on.
	Paused bool `json:"paused,omitempty"`
	// ReadOnly refuses every command.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Public set to false keeps the public out: the agent withdraws all routes. Absent is true.
	Public *bool `json:"public,omitempty"`
	// Audit is "required" where no command is carried out without a record of it.
	Audit string `json:"audit,omitempty"`
	// Trust defines by what Runners prove themselves beside the control plane's CA; if absent, that
	// CA is enough.
	Trust []Trust `json:"trust,omitzero"`
	// FetchHosts are patterns of the hosts from which the agent may fetch charts, Git repositories
	// and build contexts. Absent, any host; empty, none.
	FetchHosts []string `json:"fetchHosts,omitzero"`
	// Preset names rules that follow those of the policy.
	Preset string `json:"preset,omitempty"`
	// Rules are read from the top, and the first that is about a call decides; a
	// call that none is about is refused. Absent, those of the preset deploy are in force.
	Rules []Rule `json:"rules,omitzero"`

	images VerifyImage // nil if nothing verifies images
}

// Rule decides whether some calls are allowed, and within which bounds. Runners, namespaces,
// commands and releases together select the calls; each stands for all if it is absent.
type Rule struct {
	// Name appears in refusals and in the audit log.
	Name string `json:"name"`
	// Deny refuses what the rule is about.
	Deny bool `json:"deny,omitempty"`
	// Runners are names of Runners; * stands for any text.
	Runners []string `json:"runners,omitzero"`
	// Namespaces are names of namespaces. A call that is not about one namespace
	// needs "*".
	Namespaces []string `json:"namespaces,omitzero"`
	// Commands are names of calls, or read, write or * for all such. What is named
	// access is in none of these three.
	Commands []string `json:"commands,omitzero"`
	// Releases are names of Helm releases. With it, the rule is about no other call than those
	// about one release.
	Releases []string `json:"releases,omitzero"`

	// Charts are those that releases may be of. Absent, any.
	Charts []Chart `json:"charts,omitzero"`
	// Images are registries, or repositories and what is below them, from which
	// alone images may be run.
	Images []string `json:"images,omitzero"`
	// Hosts are patterns of the names under which objects may be reached from outside. Absent,
	// any single name is allowed, and no wildcard.
	Hosts []string `json:"hosts,omitzero"`
	// Public set to false allows nothing that is reached from outside. Set to true, it allows Apps
	// their host below the gateway's domain though hosts does not name it. Absent, hosts decides.
	Public *bool `json:"public,omitempty"`
	// Visitors set to "required" allows what is reached from outside only for Apps whose
	// ingress.visitors does not let in everyone, and "sign-in" only for those whose
	// ingress.visitors.signIn does not.
	Visitors string `json:"visitors,omitempty"`
	// PublicPorts are the ports of the gateway that Apps may name, as numbers and ranges such as
	// 20000-20099; "*" is any, also one that the control plane chooses. They are for TCP and UDP;
	// 53/udp and 5432/tcp are for one of them. Absent, public and hosts decide, as for a Service of
	// the type NodePort.
	PublicPorts PortRanges `json:"publicPorts,omitzero"`
	// Annotations are patterns of the keys that objects may have, besides harmless ones.
	Annotations []string `json:"annotations,omitzero"`
	// Placement are patterns of how pods may choose their nodes and their priority, as
	// nodeSelector/KEY, toleration/KEY, priorityClass/NAME, node/NAME, runtimeClass/NAME,
	// scheduler/NAME and device/NAME, an extended resource. Absent, in any way.
	Placement []string `json:"placement,omitzero"`
	// MaxReplicas is the most pods that an App or an object may ask for.
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// MaxResources are the highest limits of a container. Each container has to have
	// limits then.
	MaxResources *runnerapi.ResourceAmounts `json:"maxResources,omitempty"`
	// Kinds are those that raw manifests and charts may have: KIND or KIND.GROUP; "*" for any but
	// ClusterRoles and ClusterRoleBindings, and for a chart's cluster-scoped objects only where
	// Namespaces is absent or has "*". KIND/NAME or KIND.GROUP/NAME is the object of that name
	// alone.
	Kinds []string `json:"kinds,omitzero"`
	// Rights are digests of the rights that roles may hold, and of the roles that bindings may
	// bind, as pipeops-agent chart allow writes them. Absent, any that the agent may grant.
	Rights []string `json:"rights,omitzero"`
	// Lookups are kinds that templates of charts may look up in the release's namespace, as in
	// Kinds. Absent, all but Secrets.
	Lookups []string `json:"lookups,omitzero"`
	// Kubernetes defines the identity with which Runners use the Kubernetes API, which
	// kubernetes-api allows.
	Kubernetes *Kubernetes `json:"kubernetes,omitempty"`
	// Record makes the agent record each exec session. Where it cannot record, as over the
	// Kubernetes API, it refuses the session.
	Record bool `json:"record,omitempty"`
	// Signers are those by one of whom each commit from Git, or the tag that is followed to it,
	// must be signed: public keys of SSH or OpenPGP, and identities of gitsign. Absent, commits
	// need no signature.
	Signers []Signer `json:"signers,omitzero"`
	// ImageSigners are keys and identities, by which the images that the rule allows must be
	// signed. Absent, images need no signature.
	ImageSigners []ImageSigners `json:"imageSigners,omitzero"`
	// Approval is how long a command waits for an approval by the cluster's owner, and how long an
	// approval is good: a duration such as 10m. Absent, commands need none. Reads never do.
	Approval string `json:"approval,omitempty"`
	// ApproveUnseen lets the owner approve commands that cannot be shown whole, such as sessions
	// with input and large bodies. Otherwise these are refused.
	ApproveUnseen bool `json:"approveUnseen,omitempty"`
}

// Chart is a chart that releases may be of.
type Chart struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digest is the h1 hash of the chart's files. Absent, any chart of that name and version is
	// allowed, and a Runner can make one.
	Digest string `json:"digest,omitempty"`
}

// required is the only value of Audit, which refuses commands without a record, and one of
// Visitors, beside signIn.
const required, signIn = "required", "sign-in"

// The sets of commands.
const (
	anything = "*"
	reads    = "read"
	writes   = "write"
)

// planned are commands that a policy may name before this agent has calls for
// them, so that one policy serves agents of several versions.
var planned = map[string]runnerapi.Access{
	runnerapi.AdoptNamespace: runnerapi.Named,
	runnerapi.AdoptApp:       runnerapi.Named,
}

// ApplyManifests is the command that brings raw manifests, which kinds bounds.
const ApplyManifests = "apply-manifests"

// bringKinds are the commands that kinds bounds: they bring objects of any kind.
var bringKinds = []string{ApplyManifests, putRelease, rollbackRelease}

// releaseCommands are the commands about one release, which releases selects.
var releaseCommands = []string{putRelease, rollbackRelease, "delete-release", "get-release", "list-release-history"}

// chartCommands are the commands that charts bounds: they deploy a chart.
var chartCommands = []string{putRelease, rollbackRelease}

const putRelease, rollbackRelease = "put-release", "rollback-release"

// sessionCommands are the commands that record is about: they run commands in containers.
var sessionCommands = []string{runnerapi.ExecCall, runnerapi.KubernetesCall}

// signedCommands are the commands that signers bounds: what they begin fetches from Git.
var signedCommands = []string{"put-source", "put-build"}

// lookupCommands are the commands that lookups bounds: they execute templates.
var lookupCommands = []string{putRelease}

// Commands returns all that a policy may name, by their access.
func Commands() map[string]runnerapi.Access {
	all := map[string]runnerapi.Access{}
	maps.Copy(all, planned)
	for _, c := range runnerapi.Calls() {
		if c.Access != runnerapi.Open {
			all[c.ID] = c.Access
		}
	}
	return all
}
