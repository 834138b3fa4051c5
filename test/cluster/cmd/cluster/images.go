package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

func newLoadImage(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "load-image FILE [REF]",
		Short: "Make an image available to a cluster's pods, under its name or another one",
		Long: `Make an image available to a cluster's pods.

FILE is a tar of an OCI image layout, such a layout's directory, or what
"docker save" wrote. Pods then find the image under its name, whatever registry
that is in, also with imagePullPolicy Always.`,
		Example: `  cluster load-image dist/agent-image.tar
  cluster load-image app.tar registry.example.com/app:v2`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Get(*name)
			if err != nil {
				return err
			}
			ref := ""
			if len(args) == 2 {
				ref = args[1]
			}
			if err := c.LoadFile(cmd.Context(), args[0], ref); err != nil {
				return err
			}
			cmd.Printf("loaded %s into cluster %s\n", args[0], c.Name)
			return nil
		},
	}
}

func newLoadApp(name *string) *cobra.Command {
	return &cobra.Command{
		Use:     "load-app APP",
		Short:   "Build a program of test/apps, load its image and print the image's name",
		Example: `  cluster kubectl -- create deployment hello --image=$(cluster load-app hello)`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Get(*name)
			if err != nil {
				return err
			}
			ref, err := c.LoadApp(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), ref)
			return err
		},
	}
}

// newLaunch and newInit are how Up starts a cluster's process 1.

func newLaunch() *cobra.Command {
	return &cobra.Command{
		Use: cluster.LaunchCommand + " DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := cluster.Launch(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), pid)
			return err
		},
	}
}

func newInit() *cobra.Command {
	return &cobra.Command{
		Use: cluster.InitCommand + " DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			// Not the command's context: process 1 handles its signals itself.
			return cluster.Init(context.Background(), args[0])
		},
	}
}
