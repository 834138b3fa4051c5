// Package ingress finds the routes of public traffic, and reports whether it arrives.
package ingress
