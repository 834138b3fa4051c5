package console

import (
	"context"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// diffContext is how many lines around a change a preview shows.
const diffContext = 3

// preview is what a deployment would do.
type preview struct {
	File     string     // the App, as the command line takes it
	Diff     []diffLine // to what runs; empty for a new App
	New      bool
	Same     bool     // nothing would change
	URLs     []string // where it will be public
	Warnings []string
}

// diffLine is a line of a unified diff.
type diffLine struct{ Kind, Text string }

// preview compares a spec with what runs now.
func (p *deployPages) preview(ctx context.Context, data deployData, spec runnerapi.AppSpec) (*preview, error) {
	found, err := operatorapi.GetApp.Do(ctx, p.opts.API, operatorapi.GetAppInput{AppKey: data.Key})
	if err != nil && !problem.Is(err, problem.NotFound) {
		return nil, err
	}
	key := data.Key
	file := func(s runnerapi.AppSpec) (string, error) {
		text, err := appfile.Write(appfile.File{Namespace: key.Namespace, Name: key.App, Spec: s})
		return string(text), err
	}
	shown := &preview{New: err != nil, Warnings: spec.Warnings()}
	if shown.File, err = file(spec); err != nil {
		return nil, err
	}
	if spec.Ingress != nil && spec.Ingress.Public && data.GatewayDomain != "" {
		shown.URLs = append(shown.URLs, "https://"+controlapi.GivenHost(key.App, key.Namespace, data.AgentID, data.GatewayDomain)+"/")
	}
	if shown.New {
		return shown, nil
	}
	was, err := file(found.Spec)
	if err != nil {
		return nil, err
	}
	now, err := file(spec.KeepUnnamed(found.Spec))
	shown.Diff, shown.Same = diff(was, now), was == now
	return shown, err
}

// diff returns the lines of a unified diff, without its head.
func diff(was, now string) []diffLine {
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{ // it fails if the string that it writes to does
		A: difflib.SplitLines(was), B: difflib.SplitLines(now), Context: diffContext,
	})
	var lines []diffLine
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
		case line[0] == '+':
			lines = append(lines, diffLine{"ins", line})
		case line[0] == '-':
			lines = append(lines, diffLine{"del", line})
		default:
			lines = append(lines, diffLine{"", line})
		}
	}
	return lines
}
