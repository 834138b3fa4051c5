package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// shrinkTimeout is how long a process may take to release unused memory: without pressure, Go takes
// minutes for that.
const shrinkTimeout = 2 * time.Minute

// profilesLimit bounds what is read of a profile, in bytes.
const profilesLimit = 64 << 20

// measure returns the sizes of the product's processes.
func (c *chaos) measure(ctx context.Context) (all []ledger.Size) {
	for _, p := range c.planes {
		all = append(all, sizeOf(ctx, p.name, p.profilesAt, p.PID()))
	}
	for _, a := range c.agents {
		all = append(all, sizeOf(ctx, a.name, a.profilesAt, a.PID()))
	}
	return all
}

// sizeOf reads from the process itself (docs/operator/observability.md#profiles), and from /proc
// (proc(5)).
func sizeOf(ctx context.Context, name, profiles string, pid int) ledger.Size {
	profile(ctx, profiles, "heap?gc=1&debug=1") // what pools keep survives one collection
	heap := profile(ctx, profiles, "heap?gc=1&debug=1")
	status := string(run.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))))
	return ledger.Size{
		Process: name, PID: pid,
		// Heap and stacks right after a collection (runtime.MemStats).
		Memory:     number(heap, "# HeapAlloc = ") + number(heap, "# Stack = "),
		Goroutines: number(profile(ctx, profiles, "goroutine?debug=1"), "goroutine profile: total "),
		Resident:   number(status, "VmRSS:") << 10,
		Files:      len(run.Must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))),
	}
}

func profile(ctx context.Context, at, what string) string {
	req := run.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/debug/pprof/"+what, nil))
	answer, err := http.DefaultClient.Do(req)
	run.Check(err)
	defer func() { _ = answer.Body.Close() }()
	body := run.Must(io.ReadAll(io.LimitReader(answer.Body, profilesLimit)))
	if answer.StatusCode != http.StatusOK {
		run.Failf("profile %s: %s", what, answer.Status)
	}
	return string(body)
}

// number returns the number after name at the beginning of a line.
func number(text, name string) int64 {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if fields := strings.Fields(rest); ok && len(fields) > 0 {
			return run.Must(strconv.ParseInt(fields[0], 10, 64))
		}
	}
	run.Failf("no line %q", name)
	return 0
}

// grown compares with the end of the previous round. After a round that killed processes of the
// product, the comparison means little, and only sets the new start.
func (c *chaos) grown(ctx context.Context, r round) []string {
	var now []ledger.Size
	var problems []string
	ctx, cancel := context.WithTimeout(ctx, shrinkTimeout)
	defer cancel()
	err := eventually(ctx, "nothing has grown", func(ctx context.Context) {
		now = c.measure(ctx)
		if problems = nil; r.whole {
			problems = ledger.Growth(c.sizes, now)
		}
		run.Check(errors.Join(asErrors(problems)...))
	})
	if err != nil && len(problems) == 0 {
		problems = append(problems, err.Error())
	}
	for _, s := range now {
		c.say("%s (process %d): %d MiB in use, %d MiB resident, %d goroutines, %d open files",
			s.Process, s.PID, s.Memory>>20, s.Resident>>20, s.Goroutines, s.Files)
	}
	c.sizes = now
	return problems
}

func asErrors(problems []string) []error {
	var errs []error
	for _, p := range problems {
		errs = append(errs, errors.New(p))
	}
	return errs
}

// dead reports how many announcements consumers could not handle.
func (c *chaos) dead() []string {
	err := run.Try(func() {
		conn := run.Must(amqp.DialTLS(c.sys.Broker.URL(broker.UserControlPlane), c.sys.Broker.TLSConfig()))
		defer func() { _ = conn.Close() }()
		queue := run.Must(run.Must(conn.Channel()).QueueDeclarePassive(rabbitmq.DeadQueue, true, false, false, false, nil))
		if queue.Messages > 0 {
			run.Failf("%d announcements were dead-lettered", queue.Messages)
		}
	})
	if err != nil {
		return []string{"RabbitMQ: " + err.Error()}
	}
	return nil
}

// eventually is harness.Eventually for a check that ends with run.Check.
func eventually(ctx context.Context, what string, check func(context.Context)) error {
	return harness.Eventually(ctx, what, func(ctx context.Context) error { return run.Try(func() { check(ctx) }) })
}
