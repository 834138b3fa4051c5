package cmdutil

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/waves"
)

// Fleet holds the flags of commands that can be for many agents.
type Fleet struct{ selector, wave string }

// ofFleet marks a flag that stands for AGENT.
const ofFleet = "of-fleet"

// Add adds the flags.
func (f *Fleet) Add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "in place of AGENT: all agents with these labels, such as env=prod")
	cmd.Flags().StringVar(&f.wave, "wave", "10%", "with --selector: agents at a time, as a number or a share; stop after a wave with a failure")
	_ = cmd.Flags().SetAnnotation("selector", ofFleet, nil) // fails for an unknown flag only
}

// forFleet reports whether a command line has labels in place of AGENT.
func forFleet(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup("selector")
	if flag == nil || !flag.Changed {
		return false
	}
	_, marked := flag.Annotations[ofFleet]
	return marked
}

// Each calls do with the agent or, with --selector, with all agents that match, in waves. do prints
// with the CLI that it is given. With --selector, a table of outcomes takes the place of its
// output.
func (f *Fleet) Each(ctx context.Context, a *CLI, agent string, out *cli.Output, do func(context.Context, *CLI, *Target) error) error {
	if f.selector == "" {
		return a.On(ctx, agent, func(ctx context.Context, t *Target) error { return do(ctx, a, t) })
	}
	l, agents, size, err := f.matching(ctx, a)
	if err != nil {
		return err
	}
	states := &fleetStates{of: map[string]string{}}
	outcomes := waves.Run(ctx, agents, size, func(ctx context.Context, agent announce.Agent) error {
		return a.quietly(agent, states, func(quiet *CLI) error {
			t, err := quiet.Reach(l, agent)
			if err != nil {
				return err
			}
			defer t.Close()
			return do(ctx, quiet, t)
		})
	})
	rows := fleetRows(ctx, outcomes, states.of)
	if err := out.Write(a.Out, rows, func(w io.Writer) { fleetTable(w, rows) }); err != nil {
		return err
	}
	return fleetVerdict(rows)
}

func (f *Fleet) matching(ctx context.Context, a *CLI) (l *Login, agents []announce.Agent, size int, err error) {
	if _, err = waves.Size(f.wave, 1); err != nil {
		return nil, nil, 0, cli.Usage(fmt.Errorf("--wave: %w", err))
	}
	if _, err = waves.Select(nil, f.selector); err != nil {
		return nil, nil, 0, cli.Usage(fmt.Errorf("--selector: %w", err))
	}
	if l, err = a.Login(ctx); err != nil {
		return nil, nil, 0, err
	}
	all, err := l.Agents(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	if agents, err = waves.Select(all, f.selector); err != nil {
		return nil, nil, 0, err
	}
	if len(agents) == 0 {
		return nil, nil, 0, &ExitError{
			Err: fmt.Errorf("no agent has the labels %s", f.selector), Code: ExitNotFound, Fix: "list the agents with: pipeops-runner agents -o yaml",
		}
	}
	size, err = waves.Size(f.wave, len(agents))
	return l, agents, size, err
}

// fleetStates are how Apps were at the end, by the ID of their agent.
type fleetStates struct {
	mu sync.Mutex
	of map[string]string
}

// quietly keeps what is printed about one agent, and prints it only if that agent failed.
func (a *CLI) quietly(agent announce.Agent, states *fleetStates, do func(*CLI) error) error {
	var said bytes.Buffer
	quiet := *a
	quiet.Out, quiet.Err, quiet.Terminal, quiet.Screen = io.Discard, &locked{w: &said}, false, false
	quiet.state = func(state string) {
		states.mu.Lock()
		defer states.mu.Unlock()
		states.of[agent.ID] = state
	}
	err := do(&quiet)
	states.mu.Lock()
	defer states.mu.Unlock()
	if err == nil {
		a.Say("agent %s: done", agent.Name)
		return nil
	}
	text := strings.TrimRight(said.String(), "\n")
	if text != "" {
		text = "\n  " + strings.ReplaceAll(text, "\n", "\n  ")
	}
	a.Say("agent %s: failed%s", agent.Name, text)
	return err
}

// locked is a writer for several goroutines.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// fleetRow is an agent in the table of outcomes.
type fleetRow struct {
	Name     string `json:"name"`
	ID       string `json:"id"`
	Outcome  string `json:"outcome"` // succeeded, failed or skipped
	State    string `json:"state,omitempty"`
	ExitCode int    `json:"exitCode"`
	Message  string `json:"message,omitempty"`
}

func fleetRows(ctx context.Context, outcomes []waves.Outcome, states map[string]string) []fleetRow {
	rows := make([]fleetRow, len(outcomes))
	for i, o := range outcomes {
		rows[i] = fleetRow{Name: o.Agent.Name, ID: o.Agent.ID, Outcome: "succeeded", State: states[o.Agent.ID]}
		switch {
		case o.Skipped:
			rows[i].Outcome = "skipped"
		case o.Err != nil:
			rows[i].Outcome, rows[i].ExitCode, rows[i].Message = "failed", exitCode(ctx, o.Err), o.Err.Error()
		}
	}
	return rows
}

func fleetTable(w io.Writer, rows []fleetRow) {
	cli.Row(w, "AGENT", "OUTCOME", "STATE", "EXIT", "MESSAGE")
	for _, r := range rows {
		cli.Row(w, r.Name, r.Outcome, r.State, r.ExitCode, r.Message)
	}
}

// fleetVerdict returns the first failure's exit code for all.
func fleetVerdict(rows []fleetRow) error {
	failed, skipped, code := 0, 0, ExitOK
	for _, r := range rows {
		switch r.Outcome {
		case "failed":
			if failed++; code == ExitOK {
				code = r.ExitCode
			}
		case "skipped":
			skipped++
		}
	}
	switch {
	case failed > 0:
		return &ExitError{Err: fmt.Errorf("%d of %d agents failed, skipped: %d", failed, len(rows), skipped), Code: code}
	case skipped > 0:
		return &ExitError{Err: errors.New("interrupted"), Code: ExitInterrupted}
	}
	return nil
}
