package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// shrinkTimeout is how long a process may take to give back what it used: Go does
// within minutes what nobody presses it to.
const shrinkTimeout = 2 * time.Minute

// measure is what the product's processes take.
func (c *chaos) measure() ([]ledger.Size, error) {
	var all []ledger.Size
	var errs []error
	add := func(name string, pid int) {
		s, err := sizeOf(name, pid)
		all, errs = append(all, s), append(errs, err)
	}
	for _, p := range c.planes {
		add(p.name, p.PID())
	}
	for _, a := range c.agents {
		add(a.name, a.PID())
	}
	return all, errors.Join(errs...)
}

// sizeOf reads /proc (proc(5)).
func sizeOf(name string, pid int) (ledger.Size, error) {
	size := ledger.Size{Process: name, PID: pid}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return size, err
	}
	for line := range strings.Lines(string(status)) {
		key, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if key != "VmRSS" && key != "Threads" || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return size, err
		}
		if key == "Threads" {
			size.Threads = n
		} else {
			size.Resident = n << 10
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	size.Files = len(files)
	return size, err
}

// grown compares with the end of the round before. In a round that killed processes
// of the product that says little, and it is where the next one begins.
func (c *chaos) grown(ctx context.Context, r round) []string {
	var now []ledger.Size
	var problems []string
	look := func(context.Context) (err error) {
		if now, err = c.measure(); err != nil {
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
		c.say("%s (process %d): %d MiB, %d threads, %d open files", s.Process, s.PID, s.Resident>>20, s.Threads, s.Files)
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

// dead says how many announcements no consumer could make sense of.
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
	queue, err := ch.QueueDeclarePassive(announce.DeadQueue, true, false, false, false, nil)
	if err != nil {
		return []string{fmt.Sprintf("queue %s: %v", announce.DeadQueue, err)}
	}
	if queue.Messages > 0 {
		return []string{fmt.Sprintf("%d announcements were dead-lettered", queue.Messages)}
	}
	return nil
}
