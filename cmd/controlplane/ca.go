package main

import "github.com/spf13/cobra"

func newCA(a *app) *cobra.Command {
	return group("ca", "Show the certificate authority, and replace it", newCAShow(a), newCARotate(a), newCAKey(a))
}
