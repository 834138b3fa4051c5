package cli

import (
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

// Version is the stamp of a build.
type Version struct {
	Program  string `json:"program"`
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// ReleaseKeys are the public keys whose releases the program takes as its own
	// later versions; see internal/release.
	ReleaseKeys []string `json:"releaseKeys,omitempty"`
}

// VersionOf returns the stamp of this program.
func VersionOf(program, version, commit string, releaseKeys ...string) Version {
	return Version{program, version, commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, releaseKeys}
}

// Say prints the stamp for a person.
func (v Version) Say(w io.Writer) {
	Say(w, "%s %s (commit %s, %s, %s)", v.Program, v.Version, v.Commit, v.Go, v.Platform)
	for _, key := range v.ReleaseKeys {
		Say(w, "trusts releases signed by %s", key)
	}
}

// NewVersion returns the subcommand version.
func NewVersion(program, version, commit string, releaseKeys ...string) *cobra.Command {
	v := VersionOf(program, version, commit, releaseKeys...)
	var out Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show which version this is",
		Example: "  " + program + " version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Write(cmd.OutOrStdout(), v, v.Say)
		},
	}
	out.Add(cmd)
	return cmd
}
