// Command kwok is KWOK, which plays the kubelets of simulated nodes, with the stages that its
// project ships: nodes and pods become ready at once, pods of Jobs complete, deleted pods go.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		os.Exit(1)
	}
}

// run is KWOK's own main, after its stages have been written to files: it only reads them from
// files or from the API.
func run() (err error) {
	stages, err := writeStages()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(stages)) }()
	os.Args = append(os.Args, "--config="+stages)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ := log.InitFlags(signals.SetupSignalContext(), flags)
	if ctx, err = config.InitFlags(ctx, flags); err != nil {
		return err
	}
	command := cmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}

func writeStages() (string, error) {
	file, err := os.CreateTemp("", "kwok-stages-*.yaml")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(strings.Join([]string{
		nodefast.DefaultNodeInit, podfast.DefaultPodReady, podfast.DefaultPodComplete, podfast.DefaultPodDelete,
	}, "\n---\n"))
	return file.Name(), errors.Join(err, file.Close())
}
