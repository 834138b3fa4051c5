// Package exec runs commands in the pods of Apps, and forwards their ports.
package exec
