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
func (c *chaos) measure(ctx context.Context) ([]ledger.Size, error) {
	var all []ledger.Size
	var errs []error
	add := func(name, profiles string, pid int) {
		s, err := sizeOf(ctx, profiles, pid)
		s.Process = name
		all, errs = append(all, s), append(errs, err)
	}
	for _, p := range c.planes {
		add(p.name, p.profilesAt, p.PID())
	}
	for _, a := range c.agents {
		add(a.name, a.profilesAt, a.PID())
	}
	return all, errors.Join(errs...)
}

// sizeOf reads from the process itself (docs/operator/observability.md#profiles), and from /proc
// (proc(5)).
func sizeOf(ctx context.Context, profiles string, pid int) (size ledger.Size, err error) {
	size.PID = pid
	for range 2 { // what pools keep survives one collection
		if size.Memory, err = inUse(ctx, profiles); err != nil {
			return size, err
		}
	}
	text, err := profile(ctx, profiles, "goroutine?debug=1")
	if err != nil {
		return size, err
	}
	if size.Goroutines, err = number(text, "goroutine profile: total "); err != nil {
		return size, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return size, err
	}
	if size.Resident, err = number(string(status), "VmRSS:"); err != nil {
		return size, err
	}
	size.Resident <<= 10
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	size.Files = len(files)
	return size, err
}

// inUse returns the size of heap and stacks right after a collection (runtime.MemStats).
func inUse(ctx context.Context, profiles string) (int64, error) {
	text, err := profile(ctx, profiles, "heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	heap, err := number(text, "# HeapAlloc = ")
	if err != nil {
		return 0, err
	}
	stacks, err := number(text, "# Stack = ")
	return heap + stacks, err
}

func profile(ctx context.Context, at, what string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/debug/pprof/"+what, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, profilesLimit))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("profile %s: %s", what, answer.Status)
	}
	return string(body), err
}

// number returns the number after name at the beginning of a line.
func number(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return strconv.ParseInt(fields[0], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("no line %q", name)
}

// grown compares with the end of the previous round. After a round that killed processes of the
// product, the comparison means little, and only sets the new start.
func (c *chaos) grown(ctx context.Context, r round) []string {
	var now []ledger.Size
	var problems []string
	look := func(ctx context.Context) (err error) {
		if now, err = c.measure(ctx); err != nil {
			return err
		}
		if problems = nil; r.whole {
			problems = ledger.Growth(c.sizes, now)
		}
		return errors.Join(asErrors(problems)...)
	}
	ctx, cancel := context.WithTimeout(ctx, shrinkTimeout)
	defer cancel()
	if err := harness.Eventually(ctx, "nothing has grown", look); err != nil && len(problems) == 0 {
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
func (c *chaos) dead(context.Context) []string {
	conn, err := amqp.DialTLS(c.sys.Broker.URL(broker.UserControlPlane), c.sys.Broker.TLSConfig())
	if err != nil {
		return []string{fmt.Sprintf("RabbitMQ: %v", err)}
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return []string{fmt.Sprintf("RabbitMQ: %v", err)}
	}
	queue, err := ch.QueueDeclarePassive(rabbitmq.DeadQueue, true, false, false, false, nil)
	if err != nil {
		return []string{fmt.Sprintf("queue %s: %v", rabbitmq.DeadQueue, err)}
	}
	if queue.Messages > 0 {
		return []string{fmt.Sprintf("%d announcements were dead-lettered", queue.Messages)}
	}
	return nil
}
