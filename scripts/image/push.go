package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
)

// newPush uploads what was built before: the digest that a release names stays.
func newPush() *cobra.Command {
	var options image.PushOptions
	cmd := &cobra.Command{
		Use:          "push FILE.tar REF",
		Short:        "Push the image of an archive, with the credentials of `docker login`",
		Example:      "  go run ./scripts/image push dist/v1.2.3/pipeops-agent-image_1.2.3.tar docker.io/pipeops/agent:v1.2.3",
		Args:         cobra.ExactArgs(2),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			archive, err := image.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, archive.Close()) }()
			if len(archive.Images) != 1 || archive.Images[0].Index == nil {
				return fmt.Errorf("%s is to hold one image with its platforms, as `make release` writes it", args[0])
			}
			digest, err := archive.Images[0].Index.Digest()
			if err != nil {
				return err
			}
			if err := image.Push(cmd.Context(), args[1], archive.Images[0], options); err != nil {
				return err
			}
			cmd.Printf("pushed %s@%s\n", args[1], digest)
			return nil
		},
	}
	cmd.Flags().BoolVar(&options.PlainHTTP, "plain-http", false, "push without TLS")
	return cmd
}
