// Package logs reads and follows the logs of Apps.
package logs
