package main

import (
	"fmt"
	"time"
)

// validity is how long after its commit a release can be installed. It bounds how long a control
// plane or a mirror can keep agents on an old version with known faults.
const validity = 180 * 24 * time.Hour

// expiry returns when a release expires: at the given time, or a validity after its commit, so that
// a second build gives the same bytes.
func expiry(given string, committed time.Time) (time.Time, error) {
	if given == "" {
		return committed.Add(validity).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, given)
	if err != nil {
		return time.Time{}, fmt.Errorf("--expires %s: write it as 2027-05-20T12:00:00Z (RFC 3339)", given)
	}
	return at.UTC().Truncate(time.Second), nil
}

// checkFuture refuses to sign a release that agents would refuse.
func checkFuture(expires, now time.Time) error {
	if now.Before(expires) {
		return nil
	}
	return fmt.Errorf("--expires: the release would have expired at %s (fix: name a later time)", expires.Format(time.RFC3339))
}
