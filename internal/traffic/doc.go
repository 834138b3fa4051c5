// Package traffic counts the public requests of Apps by host: over the last hour in minutes, and
// over the last day in hours. It keeps an access log where that is wanted. All of it is in memory,
// within bounds. The figures are shared through a Store, so that each replica can report the
// requests of all, also after a restart.
//
// It does not see requests that do not come through the agent, as in direct mode.
package traffic
