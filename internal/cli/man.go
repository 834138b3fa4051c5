package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// NewMan returns the hidden command that writes the manual pages, which packages of a release
// contain. Their date is that of SOURCE_DATE_EPOCH.
func NewMan(version string) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages into a folder", Hidden: true, Args: ExactArgs("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true // it names the day of the build
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: root.Name() + " " + version, Manual: "PipeOps"}, args[0])
		},
	}
}
