package agent

import (
	"cmp"

	"github.com/pipeops/pipeops-vm-agent/internal/build"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
)

// toolsImage is the agent's own, as it is published, before its version.
const toolsImage = "pipeops/agent:"

// newBuilds returns what builds images. It asks and holds nothing before it is used.
func newBuilds(opts Options, owner *policy.Policy, guard egress.Guard) (*build.Client, error) {
	c := opts.Config
	return build.New(opts.Kubernetes, build.Options{
		Namespace: c.Namespace, Namespaces: c.Namespaces, Image: c.BuildImage,
		ToolsImage: cmp.Or(c.BuildToolsImage, toolsImage+opts.Version), Guard: guard, Policy: owner,
	})
}
