package cli

import (
	"io"
	"runtime"
	"strings"

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

// ServerVersion is what a command line found out about the version of the control plane.
type ServerVersion struct {
	URL     string `json:"url,omitempty"`
	Version string `json:"version,omitempty"`
	// Error is why the version is unknown. It is not an error of the command.
	Error string `json:"error,omitempty"`
}

// NewServerVersion describes an answer, or why there was none.
func NewServerVersion(url, version string, err error) *ServerVersion {
	v := &ServerVersion{URL: url, Version: version}
	if err != nil {
		v.Error = strings.Join(strings.Fields(err.Error()), " ")
	}
	return v
}

// Say prints the version, or in one line why it is unknown.
func (v *ServerVersion) Say(w io.Writer) {
	at := ""
	if v.URL != "" {
		at = " at " + v.URL
	}
	if v.Error != "" {
		Say(w, "control plane%s: version unknown: %s", Printable(at), Printable(v.Error))
		return
	}
	Say(w, "control plane %s%s", Printable(v.Version), Printable(at))
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
