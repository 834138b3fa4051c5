package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newSet(a *app) *cobra.Command {
	return group("set", "See and delete sets of manifests", newSetList(a), newSetGet(a), newSetDelete(a))
}

func newSetList(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use: "list AGENT", Short: "List the sets of manifests of a namespace",
		Example:           "  pipeops-runner set list shop -n production",
		Args:              exactArgs("AGENT"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				sets, err := t.ListSets(ctx, namespace)
				if err != nil {
					return at(t, namespace, err)
				}
				return out.Write(a.out, runnerapi.ManifestSetList{Items: sets}, func(w io.Writer) { setTable(w, sets...) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	return cmd
}

func newSetGet(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use: "get AGENT NAME", Short: "Show what a set of manifests holds, and how each object is",
		Example:           "  pipeops-runner set get shop web-extras",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				set, err := t.GetSet(ctx, key)
				if err != nil {
					return at(t, "set "+key.String(), err)
				}
				return out.Write(a.out, set, func(w io.Writer) {
					setTable(w, set)
					cli.Row(w, "OBJECT", "STATE", "MESSAGE")
					for _, o := range set.Objects {
						cli.Row(w, o.String(), string(o.State), o.Message)
					}
					for _, o := range set.Objects {
						if o.Diagnosis != nil {
							cli.Row(w, "Not well:", o.String())
							diagnosisRows(w, o.Diagnosis)
						}
					}
				})
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	return cmd
}

func newSetDelete(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	var write writing
	cmd := &cobra.Command{
		Use: "delete AGENT NAME", Short: "Delete a set of manifests with all that it holds",
		Example:           "  pipeops-runner set delete shop web-extras",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				result, err := t.DeleteSet(ctx, key, write.options())
				if err != nil {
					return at(t, "set "+key.String(), err)
				}
				if err := out.Write(a.out, result, func(w io.Writer) { applyTable(w, result) }); err != nil {
					return err
				}
				if result.Failed > 0 || result.Problem != nil {
					return &exitError{error: fmt.Errorf("set %s: %d of %d objects could not be deleted", key, result.Failed, len(result.Objects)), code: exitFailure}
				}
				a.sayDeleted("set "+key.String(), write.dryRun)
				return nil
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	write.addWriting(cmd)
	return cmd
}

func setTable(w io.Writer, sets ...runnerapi.ManifestSet) {
	cli.Row(w, "NAME", "OBJECTS", "STATE", "APPLIED", "BY")
	for _, s := range sets {
		state := "complete"
		switch {
		case !s.Complete:
			state = "incomplete"
		case s.Ready != nil && *s.Ready:
			state = "ready"
		case s.Ready != nil:
			state = "not ready"
		}
		cli.Row(w, s.Name, fmt.Sprint(s.Count), state, cli.Age(s.AppliedAt), s.AppliedBy)
	}
}
