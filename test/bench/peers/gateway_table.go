package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

const (
	hostsOfAgent = 10
	lookups      = 1_000_000
)

func tableHost(i int) string  { return fmt.Sprintf("app%d.example.com", i) }
func tableAgent(i int) string { return fmt.Sprintf("agent%d", i) }

// measureTable measures lookups, memory and changes in a table of many hosts.
func (b *gatewayBench) measureTable(ctx context.Context) error {
	of := map[string][]string{}
	for i := range b.hosts {
		id := tableAgent(i / hostsOfAgent)
		of[id] = append(of[id], tableHost(i))
	}
	routes, err := way.Table(ctx, filepath.Join(b.dir, "table.db"), of)
	if err != nil {
		return err
	}
	if err := b.measureMemory(ctx, routes); err != nil {
		return err
	}
	begin := time.Now()
	for i := range lookups {
		if _, ok := routes.Table.Lookup(tableHost(i % b.hosts)); !ok {
			return fmt.Errorf("%s is not in the table", tableHost(i%b.hosts))
		}
	}
	b.lookup = time.Since(begin) / lookups
	return b.measureChanges(ctx, routes)
}

// measureMemory fills another table from the same database.
func (b *gatewayBench) measureMemory(ctx context.Context, routes *way.Routes) error {
	before := heap()
	table := gateway.NewTable(routes.Store, time.Now)
	if err := table.Refresh(ctx); err != nil {
		return err
	}
	b.memory = max(0, float64(heap())-float64(before)) / float64(b.hosts)
	runtime.KeepAlive(table)
	return nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// measureChanges counts from the change in the database to the first lookup that finds it.
func (b *gatewayBench) measureChanges(ctx context.Context, routes *way.Routes) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follower := gateway.NewFollower(gateway.Follower{
		Table: routes.Table, Metrics: gateway.NewMetrics(prometheus.NewRegistry(), "bench"), Log: zerolog.Nop(),
	})
	done := make(chan error, 1)
	go func() { done <- follower.Run(ctx) }()
	for i := range b.changes {
		name := fmt.Sprintf("new%d.example.com", i)
		begin := time.Now()
		if err := routes.Put(ctx, tableAgent(i%(b.hosts/hostsOfAgent)), name); err != nil {
			return err
		}
		follower.Look()
		for {
			if _, ok := routes.Table.Lookup(name); ok {
				break
			}
			if time.Since(begin) > time.Minute {
				return fmt.Errorf("%s is not served after a minute", name)
			}
			time.Sleep(time.Millisecond)
		}
		b.slowest = max(b.slowest, time.Since(begin))
	}
	cancel()
	return <-done
}
