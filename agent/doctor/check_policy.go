package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
)

// policy reads what the owner of the cluster lets Runners do, where the agent
// reads it.
func (c *cluster) policy(ctx context.Context) []Finding {
	doc, source, err := c.readPolicy(ctx)
	if err != nil {
		return failure(fmt.Errorf("%s: %w", source, err), "until it is corrected every command is refused; try it with `pipeops-agent policy check`")
	}
	p := policy.New(source)
	p.Set(doc, nil)
	switch s := p.State(); {
	case doc.Paused || doc.ReadOnly:
		return warning(source+": "+s.State, "commands are refused until its owner changes that (docs/cluster-owner/policy.md)")
	case doc.Rules == nil:
		return ok("the default; " + source + " sets another")
	}
	if ended := doc.EndedSigners(time.Now()); len(ended) > 0 {
		return warning(source+": "+strings.Join(ended, "; "), "commits that it signs are refused: put the renewed key in its place (docs/reference/policy.md)")
	}
	return ok(fmt.Sprintf("%s, %d rules", source, len(doc.Rules)))
}

func (c *cluster) readPolicy(ctx context.Context) (doc policy.Document, source string, err error) {
	if file := c.Config.PolicyFile; file != "" {
		doc, err = policy.ReadFile(file)
		return doc, file, err
	}
	k, err := kube.New(c.restConfig(), kube.Options{Namespace: c.Config.Namespace})
	if err != nil {
		return doc, "the policy", err
	}
	data, err := k.ReadPolicy(ctx)
	if err == nil {
		doc, err = policy.FromConfigMap(data)
	}
	return doc, k.PolicySource(), err
}
