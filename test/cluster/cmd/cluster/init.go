package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
)

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
