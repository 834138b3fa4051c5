package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
)

const (
	slots = 3 // Apps of one worker at a time
	// patience is how long a client retries before the worker sends the command again, under its
	// key.
	patience    = 8 * time.Second
	callTimeout = 20 * time.Second
	// maxOpen bounds the commands without an answer of one App, Secret or ConfigMap.
	maxOpen = 3
	// image does not exist: pods are simulated.
	image = "chaos.test/app:1"
	// valueVariable is the variable of an App that makes each deploy different.
	valueVariable = "CHAOS"
	valueKey      = "value" // of a Secret or ConfigMap
)

// worker commands its own Apps, one command at a time.
type worker struct {
	name     string
	listener *listener
	ledger   *ledger.Ledger
	rng      *rand.Rand
	slots    [slots]slot
	number   int
	client   *client.Client
	way      []announce.Endpoint // the endpoints that client uses
	doing    atomic.Pointer[string]
}

// slot is an App with its Secret and its ConfigMap, in the state that the worker expects.
type slot struct {
	life   int // counts the Apps that had the slot
	exists map[string]bool
	open   map[string]int // commands without an answer
}

func (s *slot) begin(life int) {
	*s = slot{life: life, exists: map[string]bool{}, open: map[string]int{}}
}

// hire creates the workers.
func (c *chaos) hire() {
	for i := range c.Workers {
		w := &worker{
			name: fmt.Sprintf("w%d", i+1), listener: c.listener, ledger: c.ledger,
			rng: rand.New(rand.NewPCG(c.Seed, uint64(i)+1)),
		}
		for n := range w.slots {
			w.slots[n].begin(0)
		}
		c.workers = append(c.workers, w)
		c.onClose(func(context.Context) error { w.close(); return nil })
	}
	audited := run.Must(c.create("audit.jsonl"))
	c.auditor = &auditor{worker: worker{name: "auditor", listener: c.listener}, out: json.NewEncoder(audited)}
}

func (w *worker) close() {
	if w.client != nil {
		w.client.Close()
	}
}

// work sends commands until rest is closed, and ends with the command in progress. If ctx ends, it
// abandons that one.
func (w *worker) work(ctx context.Context, rest <-chan struct{}) {
	for {
		n := w.rng.IntN(slots)
		command := w.choose(n)
		w.send(ctx, &command)
		w.ledger.Add(command)
		w.learn(n, &command)
		timer := time.NewTimer(100*time.Millisecond + w.upTo(600*time.Millisecond))
		select {
		case <-ctx.Done():
		case <-rest:
		case <-timer.C:
			continue
		}
		timer.Stop()
		return
	}
}

func (w *worker) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// weights are the frequencies of commands on an existing App.
var weights = []struct {
	kind   ledger.Kind
	weight int
}{
	{ledger.Deploy, 6}, {ledger.Scale, 4}, {ledger.Restart, 3}, {ledger.Delete, 2},
	{ledger.PutSecret, 4}, {ledger.DeleteSecret, 1}, {ledger.PutConfig, 4}, {ledger.DeleteConfig, 1},
}

// choose returns the next command. Most are possible, as far as the worker knows.
func (w *worker) choose(n int) ledger.Command {
	s := &w.slots[n]
	w.number++
	kind := w.kind()
	switch object := kind.Object(); {
	case s.exists[object]:
	case object == "App":
		kind = ledger.Deploy
	case object == "Secret":
		kind = ledger.PutSecret
	default:
		kind = ledger.PutConfig
	}
	return ledger.Command{
		Number: w.number, Kind: kind, Name: fmt.Sprintf("%s-%d-%d", w.name, n, s.life),
		Key: fmt.Sprintf("%s-%d-%08x", w.name, w.number, w.rng.Uint32()), Value: fmt.Sprintf("%s-%d", w.name, w.number), Replicas: int32(1 + w.rng.IntN(3)),
	}
}

func (w *worker) kind() ledger.Kind {
	sum := 0
	for _, k := range weights {
		sum += k.weight
	}
	at := w.rng.IntN(sum)
	for _, k := range weights {
		if at -= k.weight; at < 0 {
			return k.kind
		}
	}
	return ledger.Deploy
}

// learn records what the worker expects. After the end of an App another one may take its slot.
func (w *worker) learn(n int, c *ledger.Command) {
	s, object := &w.slots[n], c.Kind.Object()
	renew := w.rng.IntN(3) == 0 // always drawn, so that the same commands follow
	gone := c.Kind == ledger.Delete || c.Kind == ledger.DeleteSecret || c.Kind == ledger.DeleteConfig
	switch c.Outcome {
	case ledger.Unanswered:
		s.open[object]++
	case ledger.Refused:
		s.exists[object] = s.exists[object] && !c.NotFound
	default:
		s.exists[object] = !gone
		if c.Kind == ledger.Delete && renew {
			s.begin(s.life + 1)
		}
	}
}

// send sends a command until it is answered, under the same key, or sometimes gives up earlier.
func (w *worker) send(ctx context.Context, c *ledger.Command) {
	tries := 0 // none: no limit
	if w.rng.IntN(4) == 0 && w.open(c) < maxOpen {
		tries = 1 + w.rng.IntN(2)
	}
	text := fmt.Sprintf("%s of %s", c.Kind, c.Name)
	w.doing.Store(&text)
	defer w.doing.Store(nil)
	c.Sent, c.Outcome = time.Now(), ledger.Unanswered
	defer func() { c.Ended = time.Now() }()
	for {
		c.Tries++
		err := w.once(ctx, c)
		if err == nil {
			c.Outcome = ledger.Acknowledged
			return
		}
		c.Error = err.Error()
		text := fmt.Sprintf("%s of %s, try %d: %v", c.Kind, c.Name, c.Tries, err)
		w.doing.Store(&text)
		if final(c, err) || ctx.Err() != nil || c.Tries == tries {
			return
		}
		timer := time.NewTimer(500 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (w *worker) open(c *ledger.Command) int {
	for n := range w.slots {
		if fmt.Sprintf("%s-%d-%d", w.name, n, w.slots[n].life) == c.Name {
			return w.slots[n].open[c.Kind.Object()]
		}
	}
	return 0
}

// final reports whether an error is an answer, and records it.
func final(c *ledger.Command, err error) bool {
	var known *runnerapi.Error
	if !errors.As(err, &known) {
		return false
	}
	switch {
	case known.Code == runnerapi.CodeNotFound:
		c.Outcome, c.NotFound = ledger.Refused, true
		removes := c.Kind == ledger.Delete || c.Kind == ledger.DeleteSecret || c.Kind == ledger.DeleteConfig
		if removes && c.Tries > 1 { // an earlier try may have done it
			c.Outcome, c.NotFound = ledger.Acknowledged, false
		}
		return true
	// An API server that has just started forbids everything for a second or two, because it has
	// not read the rights yet. The agent passes that on, and then refuses everything until it has
	// read the cluster owner's policy again.
	case known.Status == http.StatusConflict, known.Status == http.StatusForbidden, known.Passing():
		return false
	}
	c.Outcome = ledger.Refused
	return known.Status < http.StatusInternalServerError
}

// once makes one try.
func (w *worker) once(ctx context.Context, c *ledger.Command) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := w.reach()
	if err != nil {
		return err
	}
	key, opts := runnerapi.Key{Namespace: namespace, Name: c.Name}, runnerapi.WriteOptions{IdempotencyKey: c.Key}
	var app runnerapi.App
	switch c.Kind {
	case ledger.Deploy:
		app, err = client.Apps().Deploy(ctx, key, spec(c), opts)
	case ledger.Scale:
		app, err = client.Apps().Scale(ctx, key, runnerapi.Scale{Replicas: &c.Replicas}, opts)
	case ledger.Restart:
		app, err = client.Apps().Restart(ctx, key, opts)
	case ledger.Delete:
		err = client.Apps().Delete(ctx, key, opts)
	case ledger.PutSecret:
		_, err = client.Secrets().Set(ctx, key, runnerapi.SecretSpec{Data: map[string]string{valueKey: c.Value}}, opts)
	case ledger.DeleteSecret:
		err = client.Secrets().Delete(ctx, key, opts)
	case ledger.PutConfig:
		_, err = client.ConfigMaps().Set(ctx, key, runnerapi.ConfigMapSpec{Data: map[string]string{valueKey: c.Value}}, opts)
	case ledger.DeleteConfig:
		err = client.ConfigMaps().Delete(ctx, key, opts)
	}
	c.Answer = ledger.Answer{Generation: app.Generation, RestartedAt: app.RestartedAt}
	return err
}

func spec(c *ledger.Command) runnerapi.AppSpec {
	return runnerapi.AppSpec{
		Image: image, Replicas: new(c.Replicas), Ports: []runnerapi.Port{{Port: 8080}},
		Env: []runnerapi.EnvVar{{Name: valueVariable, Value: c.Value}},
	}
}

// reach returns a client that uses the endpoints in the Runner's directory.
func (w *worker) reach() (*client.Client, error) {
	agent, err := w.listener.directory.Get(agentName)
	if err != nil {
		return nil, err
	}
	if len(agent.Endpoints) == 0 {
		return nil, errors.New("the agent has no endpoint")
	}
	if w.client != nil && fmt.Sprint(w.way) == fmt.Sprint(agent.Endpoints) {
		return w.client, nil
	}
	runner := w.listener.runner
	config := client.Config{
		AgentID: agent.ID, ServerName: agent.Endpoints[0].ServerName, TrustDomain: runner.Credentials().TrustDomain,
		Roots: runner.Roots(), Certificate: runner.Certificate, Patience: patience, UserAgent: "chaos/" + w.name,
	}
	for _, e := range agent.Endpoints {
		config.EdgeAddresses = append(config.EdgeAddresses, e.Address)
	}
	client, err := client.New(config)
	if err != nil {
		return nil, err
	}
	w.close()
	w.client, w.way = client, agent.Endpoints
	return client, nil
}
