// Package appcache reads Apps and their pods from the cache or from the API server, and reports
// their changes. It writes what every part of the agent writes in the same way: a part of a status,
// an event, a deletion.
package appcache
