// Package evidence collects what an App is diagnosed by: pods, events, log lines, tries of ports.
// Package diagnose judges it.
package evidence
