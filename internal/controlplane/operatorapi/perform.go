package operatorapi

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// performer carries out calls on a control plane's data.
type performer struct {
	recorder
	admin *administration.Admin
	log   zerolog.Logger
}

// perform carries out an admitted call. A change is in the audit log before it is
// made.
func (p *performer) perform(ctx context.Context, d *Description, in any, r *record, run func(context.Context, *administration.Admin) error) error {
	r.about(d, in)
	admin := p.admin
	switch w := writeOf(in); {
	case !d.Changes():
	case w != nil && w.DryRun:
		admin = admin.DryRun()
	default:
		if err := p.begin(ctx, r); err != nil {
			return err
		}
	}
	return run(ctx, admin)
}

// refusal returns what an operator is told about an error.
func refusal(err error) *problem.Error {
	var known *problem.Error
	var away *ca.RootAwayError
	switch {
	case errors.As(err, &known) && known.Status != problem.Errorf(problem.Unauthorized, "", "").Status:
		answer := *known
		return &answer
	case known != nil: // the registry refuses an agent, not the operator
		return problem.Errorf(problem.Conflict, known.Fix, "%s", known.Detail)
	case errors.As(err, &away), errors.Is(err, datadir.ErrNeverServed):
		return problem.Errorf(problem.Conflict, "", "%s", err.Error())
	}
	return nil
}
