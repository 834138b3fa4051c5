package main

import "github.com/spf13/cobra"

func newCA(a *app) *cobra.Command {
	return group("ca", "Manage the certificate authority (CA)", newCAShow(a), newCAIssued(a), newCARotate(a), newCARoot(a), newCAKey(a))
}
