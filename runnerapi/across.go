package runnerapi

// Across describes how a call whose path names no namespace is held to rules about namespaces.
type Across string

// The ways in which such calls are.
const (
	// AcrossFound is asked about for the namespace that it turns out to be about.
	AcrossFound Across = "found"
	// AcrossFiltered leaves out of its answer what is in a namespace that the policy hides.
	AcrossFiltered Across = "filtered"
	// AcrossCluster is for a call about the whole cluster, which names nothing in a namespace.
	AcrossCluster Across = "cluster"
)

type acrossCall struct {
	how Across
	// within lists the calls that show the same for one namespace. A Runner that may not send them
	// there does not see that namespace here.
	within []string
}

// acrossCalls has each call without a namespace in its path. One that is missing is refused.
var acrossCalls = map[string]acrossCall{
	"get-cluster":      {how: AcrossCluster},
	"list-namespaces":  {how: AcrossFiltered, within: []string{"get-namespace"}},
	"list-apps":        {how: AcrossFiltered, within: []string{"list-namespace-apps", "get-app"}},
	"get-operation":    {how: AcrossFound},
	"list-audit":       {how: AcrossFiltered},
	"list-nodes":       {how: AcrossCluster},
	"get-node":         {how: AcrossCluster},
	"cordon-node":      {how: AcrossCluster},
	"uncordon-node":    {how: AcrossCluster},
	"drain-node":       {how: AcrossFiltered},
	"get-join-command": {how: AcrossCluster},
	"get-join-token":   {how: AcrossCluster},
	ApplyCall:          {how: AcrossFound},
	KubernetesCall:     {how: AcrossFiltered},
}

// AcrossOf returns how a call without a namespace in its path is held to rules about
// namespaces, and the calls that show the same for one namespace; found is false for others.
func AcrossOf(command string) (how Across, within []string, found bool) {
	c, found := acrossCalls[command]
	return c.how, c.within, found
}
