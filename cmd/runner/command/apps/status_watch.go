package apps

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// watchApp prints the state of an App and each change of it: until its rollout ends or the time is
// over, if the command waits for that.
func watchApp(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, key runnerapi.Key, wait *cmdutil.Waiting, out *cli.Output) error {
	watching := ctx
	if wait.Wanted() {
		var cancel context.CancelFunc
		watching, cancel = context.WithTimeout(ctx, wait.Limit)
		defer cancel()
	}
	err := t.Apps().Events(watching, key, runnerapi.EventOptions{Follow: !wait.Wanted()}, func(e runnerapi.AppEvent) error {
		return out.WriteLine(a.Out, e, cli.Time(e.Time)+" "+eventText(e))
	})
	switch {
	case err != nil && watching.Err() == nil:
		return cmdutil.At(t, key.String(), err)
	case !wait.Wanted() || ctx.Err() != nil:
		return ctx.Err()
	}
	app, err := t.Apps().Get(ctx, key)
	if err != nil {
		return cmdutil.At(t, key.String(), err)
	}
	return a.Verdict(t, app, app.Generation, wait.Limit)
}

func eventText(e runnerapi.AppEvent) string {
	s := e.Status
	if e.Type == runnerapi.EventRemoved {
		return fmt.Sprintf("%s/%s: removed", e.Namespace, e.Name)
	}
	text := fmt.Sprintf("%s/%s: %s", e.Namespace, e.Name, s.Phase)
	switch {
	case len(s.Runs) > 0:
		text += fmt.Sprintf(", last run: %s", s.Runs[0].Outcome)
	case s.DesiredReplicas > 0:
		text += fmt.Sprintf(", %d/%d ready, %d updated", min(s.ReadyReplicas, s.DesiredReplicas), s.DesiredReplicas, s.UpdatedReplicas)
	}
	text += fmt.Sprintf(", generation %d", e.Generation)
	if d := s.Diagnosis; d != nil {
		text += fmt.Sprintf("; %s: %s (fix: %s)", d.Cause, d.Message, d.Fix)
	}
	if u := s.Undone; u != nil {
		text += "; " + cmdutil.UndoneText(u)
	}
	return text
}
