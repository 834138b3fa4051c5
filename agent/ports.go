package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
)

// servePorts serves Prometheus' port and that of profiles, where they are asked for, until the
// returned function is called.
func (a *Agent) servePorts(ctx context.Context) (stop func(), err error) {
	address, waits := a.opts.Config.MetricsAddress, a.metricsWait()
	if waits {
		address = ""
	}
	ports, err := a.openPorts(ctx, address, a.opts.Config.PprofAddress)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
	}
	running.Go(func() { a.runPorts(life, ports) })
	if !waits {
		return stop, nil
	}
	file := a.opts.Config.AlertsTokenFile
	watcher, err := watchDirectory(filepath.Dir(file))
	if err != nil {
		stop()
		return nil, fmt.Errorf("PIPEOPS_ALERTS_TOKEN_FILE: %w (fix: make the directory)", err)
	}
	running.Go(func() {
		defer func() { _ = watcher.Close() }()
		whileExists(life, watcher, file, a.serveMetrics)
	})
	return stop, nil
}

// metricsWait reports whether the port of metrics is closed until a cluster has monitoring.
func (a *Agent) metricsWait() bool {
	return a.opts.Config.MetricsOnDemand && a.opts.Config.MetricsAddress != ""
}

func (a *Agent) openPorts(ctx context.Context, address, pprof string) (*metrics.Ports, error) {
	return metrics.Open(ctx, metrics.PortsConfig{
		Metrics: address, MetricsName: "PIPEOPS_METRICS_ADDRESS", Pprof: pprof, PprofName: "PIPEOPS_PPROF_ADDRESS",
		Gatherer: a.instruments.gatherer(), Also: a.alertHandlers(), Log: a.log,
	})
}

func (a *Agent) runPorts(ctx context.Context, ports *metrics.Ports) {
	if err := ports.Run(ctx); err != nil {
		a.log.Error().Err(err).Msg("the metrics or profiling port failed")
	}
}

// serveMetrics serves the port of metrics alone, until ctx ends.
func (a *Agent) serveMetrics(ctx context.Context) {
	ports, err := a.openPorts(ctx, a.opts.Config.MetricsAddress, "")
	if err != nil {
		a.log.Error().Err(err).Msg("failed to open the metrics port")
		return
	}
	a.runPorts(ctx, ports)
	a.log.Info().Msg("closed the metrics port")
}

func watchDirectory(dir string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := w.Add(dir); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	return w, nil
}

// whileExists runs a function whenever the file exists, until ctx ends. The function's context
// ends when the file goes.
func whileExists(ctx context.Context, w *fsnotify.Watcher, file string, run func(context.Context)) {
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		_, err := os.Stat(file)
		switch exists := err == nil; {
		case exists && stop == nil:
			stop = begin(ctx, run)
		case !exists && stop != nil:
			stop()
			stop = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-w.Events:
		case err := <-w.Errors: // events may be lost: look
			if err == nil { // it is closed
				return
			}
		}
	}
}

// begin runs a function until the returned one is called, which waits for its end.
func begin(ctx context.Context, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
