package main

import (
	"context"
	"net/http"
	"net/rpc"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

// Flood makes the requests of many visitors. It is a process of its own: in the process of the
// measured clients, it would add its own threads and goroutines to what they wait for.
type Flood struct {
	clients map[string]*http.Client // by the address that they call
}

// Surge is one flood.
type Surge struct {
	Dir, Address string
	For          time.Duration
}

// Send sends requests to an address until the time is over.
func (f *Flood) Send(s Surge, answered *int) error {
	client := f.clients[s.Address]
	if client == nil {
		var err error
		if client, err = way.Visitor(s.Dir, s.Address, way.HTTP1); err != nil {
			return err
		}
		f.clients[s.Address] = client
	}
	got, err := load.RunClosed(context.Background(), client, otherURL+load.PathSmall, floodClients, 0, s.For)
	*answered = got.Answered
	return err
}

// floodAt has visitors of the other host call an address, for as long as the measurement and a
// little longer. The function that it returns waits for their end.
func (b *gatewayBench) floodAt(address string) (end func() error) {
	surge := Surge{Dir: b.dir, Address: address, For: b.measure + 2*warmUp}
	call := b.flood.Go("Flood.Send", surge, new(int), make(chan *rpc.Call, 1))
	return func() error { return (<-call.Done).Error }
}
