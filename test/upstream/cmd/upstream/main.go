// Command upstream compiles the programs of others that tests run in a cluster, and prints their
// sizes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	for _, p := range upstream.All() {
		began := time.Now()
		img, err := p.Build(ctx)
		if err != nil {
			return err
		}
		layers, err := img.Layers()
		if err != nil {
			return err
		}
		var size int64
		for _, l := range layers {
			n, err := l.Size()
			if err != nil {
				return err
			}
			size += n
		}
		fmt.Printf("%s: %d MB, after %s\n", p.Ref, size>>20, time.Since(began).Round(time.Second))
	}
	return nil
}
