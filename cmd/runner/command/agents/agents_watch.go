package agents

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

var errAside = errors.New("--aside goes with --watch")

// runWatch keeps a directory of agents and prints its changes. The directory
// looks after the broker and the control plane being away.
func (c *agentsCommand) runWatch(ctx context.Context) error {
	l, err := c.Login(ctx)
	if err != nil {
		return err
	}
	if _, err := l.Agents(ctx); err != nil { // an error now is one to end with
		return err
	}
	log := zerolog.New(zerolog.ConsoleWriter{Out: c.Err, NoColor: !c.Terminal, TimeFormat: time.TimeOnly}).Level(zerolog.WarnLevel)
	config := announce.DirectoryConfig{Snapshot: l.Snapshot, Timeline: l.Timeline, Log: log}
	if l.Broker.URL == "" {
		c.Say("the credentials name no broker: asking the control plane every 15 seconds instead; of several changes of an agent in between, the last one shows")
	} else if config.Events, err = c.events(l, log); err != nil {
		return err
	}
	dir, err := announce.NewDirectory(config)
	if err != nil {
		return cli.Usage(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = dir.Run(ctx) }() // ends with ctx only
	defer func() { cancel(); <-done }()
	if err := dir.WaitSynced(ctx); err != nil {
		return nil // interrupted: a watch has no other end
	}
	err = dir.Watch(ctx, c.printChange)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *agentsCommand) events(l *cmdutil.Login, log zerolog.Logger) (*announce.ConsumerConfig, error) {
	queue := rabbitmq.RunnerQueue(l.Runner)
	if c.aside {
		queue = rabbitmq.RunnerWatchQueue(l.Runner, uuid.NewString())
	}
	urls, conf, err := brokers(l.Broker)
	if err != nil {
		return nil, cli.Usage(err)
	}
	config := rabbitmq.Config{URLs: urls, TLS: conf, Log: log, Name: "pipeops-runner agents --watch"}
	config.Reread = func() ([]string, *tls.Config, error) { // the broker's password may be another by now
		now, err := credentials.Load(l.File)
		if err != nil {
			return nil, nil, err
		}
		return brokers(now.Broker)
	}
	return &announce.ConsumerConfig{Config: config, Queue: queue}, nil
}

// brokers returns the brokers' URLs, and how their certificates are verified; nil for the machine's
// CAs.
func brokers(b credentials.Broker) ([]string, *tls.Config, error) {
	urls := strings.Split(b.URL, ",")
	if b.CA == "" {
		return urls, nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(b.CA)) {
		return nil, nil, errors.New("credentials: broker.ca holds no certificate")
	}
	return urls, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}

// watchLine is a change as -o json and -o yaml show it.
type watchLine struct {
	Time  time.Time            `json:"time,omitzero"`
	Type  announce.Type        `json:"type"`
	Agent announce.Agent       `json:"agent"`
	App   *announce.AppEvent   `json:"app,omitempty"`
	Route *announce.RouteEvent `json:"route,omitempty"`
	Alert *announce.AlertEvent `json:"alert,omitempty"`
	// Initial marks the agents that were there when the watch began.
	Initial bool `json:"initial,omitempty"`
}

func (c *agentsCommand) printChange(ch announce.Change) error {
	line := watchLine{Time: ch.Time, Type: ch.Type, Agent: ch.Agent, App: ch.App, Route: ch.Route, Alert: ch.Alert, Initial: ch.Initial}
	return c.out.WriteLine(c.Out, line, describeChange(ch))
}

func describeChange(ch announce.Change) string {
	at := ch.Time
	if at.IsZero() {
		at = time.Now()
	}
	s := fmt.Sprintf("%s  %-16s  %s (%s)", cli.Time(at), kind(ch), ch.Agent.Name, ch.Agent.ID)
	if app := ch.App; app != nil {
		s += fmt.Sprintf("  %s  %s  %s", runnerapi.Key{Namespace: app.Namespace, Name: app.Name}, app.Pods(), app.Image)
		if app.Cause != "" {
			s += fmt.Sprintf("  %s: %s", app.Cause, app.Message)
		}
		return s
	}
	if ch.Route != nil {
		return s + "  " + routeWords(*ch.Route)
	}
	if ch.Alert != nil {
		return s + "  " + alertWords(*ch.Alert)
	}
	return s + fmt.Sprintf("  %s  Kubernetes %s  %s", ch.Agent.State, ch.Agent.KubernetesVersion, cli.Count(ch.Agent.Capacity.Nodes, "node"))
}

// kind returns the event's name; for an agent that was there already, that.
func kind(ch announce.Change) string {
	if ch.Initial {
		return "agent"
	}
	return string(ch.Type)
}
