package routes

import (
	"context"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Traffic implements backend.Routes.
func (l List) Traffic(ctx context.Context, key runnerapi.Key, opts runnerapi.TrafficOptions) (runnerapi.Traffic, error) {
	if _, err := l.engine.Get(ctx, key); err != nil {
		return runnerapi.Traffic{}, err
	}
	routes, state, unknown, err := l.known(ctx)
	if err != nil {
		return runnerapi.Traffic{}, err
	}
	sharing := l.registrar.Traffic
	hosts, err := sharing.All(ctx)
	if err != nil {
		l.registrar.Log.Warn().Err(err).Msg("failed to read the figures of public requests that other replicas share")
	}
	out := traffic.Report(hosts, traffic.App(key), traffic.SpanOf(opts.Since), sharing.Counters.Now())
	if err != nil {
		out.Incomplete = "they cannot be read from the cluster; see the agent's log"
	}
	if unknown != nil {
		state = controlapi.RoutesState{}
	}
	l.addHosts(&out, routes, state)
	return out, nil
}

// addHosts adds the hosts without requests, and how requests come to each.
func (l List) addHosts(out *runnerapi.Traffic, routes []ingress.Route, state controlapi.RoutesState) {
	for _, r := range routes {
		if r.App.Namespace != out.Namespace || r.App.Name != out.Name || r.Refused || r.Protocol != "" {
			continue
		}
		name := strings.ToLower(r.Host)
		at := slices.IndexFunc(out.Hosts, func(h runnerapi.HostTraffic) bool { return h.Host == name })
		if at < 0 {
			at = len(out.Hosts)
			counted := l.registrar.Traffic.Counters.Counted(traffic.Owner{App: traffic.App(r.App), Host: name})
			out.Hosts = append(out.Hosts, runnerapi.HostTraffic{Host: name, Counted: counted})
		}
		if host, known := hostStatus(state, r.Host); known {
			out.Hosts[at].Mode = modeOf(host)
		}
	}
	slices.SortFunc(out.Hosts, func(a, b runnerapi.HostTraffic) int { return strings.Compare(a.Host, b.Host) })
}

// AccessLog implements backend.Routes.
func (l List) AccessLog(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	if _, err := l.engine.Get(ctx, key); err != nil {
		return err
	}
	return l.registrar.Traffic.Counters.Logs.Read(ctx, traffic.App(key), l.registrar.Replica, opts, emit)
}
