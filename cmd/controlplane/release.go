package main

import "github.com/spf13/cobra"

func newRelease(a *app) *cobra.Command {
	return group("release", "Offer releases to agents whose customers let them update themselves",
		newReleaseOffer(a), newReleaseList(a), newReleaseWithdraw(a))
}
