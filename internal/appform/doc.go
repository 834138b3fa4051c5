// Package appform is an App's spec as people write it: in the fields of a form, and in the short
// texts for ports, hosts and keys that the form shares with the flags of the command line.
package appform
