package main

import (
	"context"
	"fmt"
	"time"
)

// warmups are calls that are not measured.
const warmups = 3

// measureLists asks for all Apps, one call after another: from the call to the
// last App decoded. Between them it asks for one App, which is next to no work:
// what that takes is the way, and what else the machine is doing.
func (b *bench) measureLists(ctx context.Context) error {
	var took, one durations
	for i := range warmups + b.Lists {
		start := time.Now()
		if _, err := b.client.Apps().Get(ctx, b.app(i)); err != nil {
			return err
		}
		if i >= warmups {
			one = append(one, time.Since(start))
		}
		start = time.Now()
		apps, err := b.client.Apps().List(ctx, "")
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
	b.set.Add("get_p50", milliseconds(one.percentile(50)))
	b.set.Add("get_p99", milliseconds(one.percentile(99)))
	b.set.Add("list_p50", milliseconds(took.percentile(50)))
	b.set.Add("list_p99", milliseconds(took.percentile(99)))
	return nil
}
