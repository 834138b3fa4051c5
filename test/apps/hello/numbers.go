package main

import (
	"bufio"
	"context"
	"log"
	"os"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
)

// numberInterval is how often the numbered lines that are due are written.
const numberInterval = 50 * time.Millisecond

// numberLines logs numbered lines, so many a second.
func numberLines(ctx context.Context, rate, size int) {
	out, start := bufio.NewWriter(os.Stdout), time.Now()
	for n := 0; pause(ctx, numberInterval); {
		for due := int(time.Since(start).Seconds() * float64(rate)); n < due; n++ {
			_, _ = out.WriteString(payload.Line(n, size) + "\n") // Flush tells
		}
		if err := out.Flush(); err != nil {
			log.Printf("numbered lines: %v", err)
			return
		}
	}
}
