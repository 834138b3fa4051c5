// Package repository fetches charts from chart repositories and OCI registries, within limits, and
// sends a login to the addresses that it is for.
package repository
