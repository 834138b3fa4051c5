// Package footprint makes a process small that has nothing to do for a while.
package footprint
