package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

// Version is what a build is stamped with.
type Version struct {
	Program  string `json:"program"`
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// NewVersion is the subcommand version.
func NewVersion(program, version, commit string) *cobra.Command {
	v := Version{program, version, commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	var out Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show which version this is",
		Example: "  " + program + " version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Write(cmd.OutOrStdout(), v, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s (commit %s, %s, %s)\n", v.Program, v.Version, v.Commit, v.Go, v.Platform)
			})
		},
	}
	out.Add(cmd)
	return cmd
}
