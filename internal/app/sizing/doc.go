// Package sizing measures Apps, recommends resource requests for them, and applies these where a
// spec asks for it.
package sizing
