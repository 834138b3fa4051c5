package main

import (
	"context"
	"fmt"
	"time"
)

// Bound on the answer to a list call.
const (
	listBound = 200 * time.Millisecond
	warmups   = 3
)

// measureLists asks for all Apps, one call after another: from the call to the
// last App decoded. Between them it asks for one App, which is next to no work:
// what that takes is the way, and what else the machine is doing.
func (b *bench) measureLists(ctx context.Context) error {
	var took, one durations
	for i := range warmups + b.Lists {
		start := time.Now()
		if _, err := b.client.Get(ctx, b.app(i)); err != nil {
			return err
		}
		if i >= warmups {
			one = append(one, time.Since(start))
		}
		start = time.Now()
		apps, err := b.client.List(ctx, "")
		if err != nil {
			return err
		}
		if len(apps) != b.Apps {
			return fmt.Errorf("the list has %d Apps of %d", len(apps), b.Apps)
		}
		if i >= warmups {
			took = append(took, time.Since(start))
		}
	}
	b.add("get_p50", "One App, p50", milliseconds(one.percentile(50)), "ms", nil)
	b.add("get_p99", "One App, p99", milliseconds(one.percentile(99)), "ms", nil)
	b.add("list_p50", "List of all Apps, p50", milliseconds(took.percentile(50)), "ms", atMost(milliseconds(listBound)))
	b.add("list_p99", "List of all Apps, p99", milliseconds(took.percentile(99)), "ms", atMost(milliseconds(listBound)))
	return nil
}
