// Package revision keeps the specs that an App had, with the command that made each.
package revision
