package main

import "github.com/spf13/cobra"

func newToken(a *app) *cobra.Command {
	return group("token", "Manage the enrolment tokens with which agents register",
		newTokenCreate(a), newTokenList(a), newTokenRotate(a), newTokenRevoke(a))
}
