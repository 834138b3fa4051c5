package main

import (
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show which version this is",
		Example: "  pipeops-runner version -o json",
		Args:    exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": version, "commit": commit, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			return out.write(a.out, v, func(w io.Writer) {
				row(w, "pipeops-runner "+version+" (commit "+commit+", "+v["go"]+", "+v["platform"]+")")
			})
		},
	}
	out.add(cmd)
	return cmd
}
