package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/proc"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

const (
	// upTimeout is how long a way may take until it carries a request.
	upTimeout = 30 * time.Second
	// askEvery is the interval of attempts.
	askEvery = 20 * time.Millisecond
	askFor   = time.Second
)

// instance is a running way: its relay, its agent, and perhaps a delay line.
type instance struct {
	way   way.Way
	at    way.Place
	relay *proc.Process // nil for direct
	agent *proc.Process
	delay *proc.Process
}

// startInstance starts the processes of a way, with a delay line before the agent.
func startInstance(w way.Way, dir string, oneWay time.Duration) (*instance, error) {
	return startInstanceAt(w, dir, "", oneWay)
}

// startInstanceTo starts a way that leads to an App.
func startInstanceTo(w way.Way, dir, app string) (*instance, error) {
	return startInstanceAt(w, dir, app, 0)
}

func startInstanceAt(w way.Way, dir, local string, oneWay time.Duration) (*instance, error) {
	addresses, err := freeAddresses(8)
	if err != nil {
		return nil, err
	}
	at := way.Place{
		Dir: dir, Public: addresses[0], Tunnel: addresses[1], Via: addresses[1], Local: cmp.Or(local, addresses[2]),
		RelaySpare: [2]string(addresses[3:5]), AgentSpare: [2]string(addresses[5:7]),
	}
	if w.Relay == nil {
		at.Public = at.Tunnel
	}
	line := addresses[7]
	if oneWay > 0 && w.Relay == nil {
		at.Public = line
	} else if oneWay > 0 {
		at.Via = line
	}
	i := &instance{way: w, at: at}
	if err := i.start(line, oneWay); err != nil {
		i.stop()
		return nil, err
	}
	return i, nil
}

func (i *instance) start(line string, oneWay time.Duration) (err error) {
	if err := i.startRelay(); err != nil {
		return err
	}
	if oneWay > 0 {
		if i.delay, err = proc.Start("delay line", i.log(roleDelay), roleCommand, roleDelay, line, i.at.Tunnel, oneWay.String()); err != nil {
			return err
		}
	}
	i.agent, err = i.startSide(roleAgent)
	return err
}

// startRelay starts the relay, also after it was killed.
func (i *instance) startRelay() (err error) {
	if i.way.Relay != nil {
		i.relay, err = i.startSide(roleRelay)
	}
	return err
}

func (i *instance) startSide(role string) (*proc.Process, error) {
	place, err := json.Marshal(i.at)
	if err != nil {
		return nil, err
	}
	return proc.Start(i.way.Name+"'s "+role, i.log(role), roleCommand, role, i.way.Name, string(place))
}

func (i *instance) log(role string) string {
	return filepath.Join(i.at.Dir, i.way.Name+"-"+role+".log")
}

func (i *instance) stop() {
	for _, p := range []*proc.Process{i.agent, i.delay, i.relay} {
		if p != nil {
			p.Kill()
		}
	}
}

// await waits until a Runner's request is answered. Each attempt uses a new connection.
func (i *instance) await(ctx context.Context, within time.Duration) error {
	client, err := way.Runner(i.at.Dir, i.at.Public, way.HTTP1)
	if err != nil {
		return err
	}
	return i.answers(ctx, client, way.BaseURL, within)
}

// answers waits until a request at that URL is answered.
func (i *instance) answers(ctx context.Context, client *http.Client, url string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := ask(ctx, client, url)
		client.CloseIdleConnections()
		if err == nil {
			return nil
		}
		var ended error
		for _, p := range []*proc.Process{i.agent, i.relay} {
			if p != nil {
				ended = errors.Join(ended, p.Ended())
			}
		}
		if ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer within %s: %w", i.way.Name, within, err)
		case <-time.After(askEvery):
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	return load.Get(ctx, client, url+load.PathSmall)
}

// freeAddresses returns unused ports of this machine, below those that the kernel gives to outgoing
// connections.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range 100 * n {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000))) //nolint:gosec // no secret
		ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		if err != nil {
			continue
		}
		defer func() { _ = ln.Close() }() // at the end, so that none is returned twice
		if addresses = append(addresses, address); len(addresses) == n {
			return addresses, nil
		}
	}
	return nil, errors.New("no free ports between 20000 and 32000")
}
