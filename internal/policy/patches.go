package policy

import (
	"errors"

	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// patches returns the rule that allows an App with what its patches add.
func (d Document) patches(i runnerapi.Intent, source string) (Rule, error) {
	var err error
	if i.Patches, err = input.Patches(i.Name, *i.App); err != nil {
		return Rule{}, err
	}
	rule, err := d.explain(i, source)
	if err != nil {
		return rule, err
	}
	return rule, d.asManifests(i, rule, source)
}

// asManifests refuses an App with patches unless the Runner may bring the patched objects as
// manifests as well: the schema of Apps does not bound them.
func (d Document) asManifests(i runnerapi.Intent, rule Rule, source string) error {
	i.Command, i.Access, i.Objects = ApplyManifests, runnerapi.Named, i.Patches
	i.App, i.Patches = nil, nil
	manifests, err := d.explain(i, source)
	if err == nil && manifests.approval(i) > 0 && rule.approval(i) == 0 { // nothing has asked the owner
		err = runnerapi.PolicyDenied("leave the patches out, or have the owner of the cluster add approval to rule "+rule.Name+" in "+source,
			"rule %q wants an approval, and rule %q, which allows the App, wants none", manifests.Name, rule.Name)
	}
	p := &problem.Error{}
	if !errors.As(err, &p) {
		return err
	}
	q := *p
	q.Detail = "the App's patches have to be allowed as manifests: " + q.Detail
	if q.Field == "" || q.Field == "kind" {
		q.Field = "patches"
	}
	return &q
}
