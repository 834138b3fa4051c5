package main

import "github.com/spf13/cobra"

func newRelease(a *app) *cobra.Command {
	return group("release", "Offer versions to agents that have self-update on",
		newReleaseOffer(a), newReleaseList(a), newReleaseWithdraw(a))
}
