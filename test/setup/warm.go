package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"
)

// warm runs a program to fill its cache, and reports at intervals that it is at work. The next run
// of the program reports its findings.
func warm(name string, args ...string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		var said bytes.Buffer
		cmd := gently(ctx, name, args...)
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if err := beat(done, out); err != nil {
			return fmt.Errorf("%w\n%s", err, said.Bytes())
		}
		return nil
	}
}

// beat waits for an end, and reports how long it has been waiting.
func beat(done <-chan error, out io.Writer) error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	start := time.Now()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			fmt.Fprintf(out, "   at work for %s\n", time.Since(start).Round(time.Second))
		}
	}
}
