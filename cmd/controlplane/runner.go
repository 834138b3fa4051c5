package main

import "github.com/spf13/cobra"

func newRunner(a *app) *cobra.Command {
	return group("runner", "Manage Runners, which deploy through agents",
		newRunnerCreate(a), newRunnerList(a), newRunnerGrant(a), newRunnerRevoke(a))
}
