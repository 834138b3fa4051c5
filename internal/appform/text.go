package appform

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ParsePort reads [NAME=]PORT[:SERVICE-PORT][/PROTOCOL].
func ParsePort(s string) (runnerapi.Port, error) {
	var p runnerapi.Port
	if name, rest, ok := strings.Cut(s, "="); ok {
		p.Name, s = name, rest
	}
	s, p.Protocol = cutProtocol(s)
	container, service, both := strings.Cut(s, ":")
	var err error
	if p.Port, err = ParsePortNumber(container); err == nil && both {
		p.Service, err = ParsePortNumber(service)
	}
	if err != nil {
		return p, fmt.Errorf("%w: expected [NAME=]PORT[:SERVICE-PORT][/udp]", err)
	}
	return p, nil
}

// cutProtocol returns a text without its /PROTOCOL, and that as the schema has it; empty for none.
func cutProtocol(s string) (rest, protocol string) {
	rest, protocol, _ = strings.Cut(s, "/")
	return rest, strings.ToUpper(protocol)
}

// protocolText is what cutProtocol reads. TCP is left out.
func protocolText(protocol string) string {
	if protocol == "" || protocol == "TCP" {
		return ""
	}
	return "/" + strings.ToLower(protocol)
}

// ParsePortNumber reads the number of a port.
func ParsePortNumber(s string) (int32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return int32(n), nil
}

// portText is what ParsePort reads.
func portText(p runnerapi.Port) string {
	text := strconv.Itoa(int(p.Port))
	if p.Name != "" {
		text = p.Name + "=" + text
	}
	if p.Service != 0 {
		text += ":" + strconv.Itoa(int(p.Service))
	}
	return text + protocolText(p.Protocol)
}

// ParseHost reads HOST[/PATH].
func ParseHost(s string) runnerapi.IngressHost {
	host, path, ok := strings.Cut(s, "/")
	if ok {
		path = "/" + path
	}
	return runnerapi.IngressHost{Host: host, Path: path}
}

// ParseKey reads OBJECT/KEY, of a Secret or ConfigMap.
func ParseKey(s string) (*runnerapi.KeyRef, error) {
	object, key, ok := strings.Cut(s, "/")
	if !ok || object == "" || key == "" {
		return nil, fmt.Errorf("%q does not name a key: expected NAME/KEY", s)
	}
	return &runnerapi.KeyRef{Name: object, Key: key}, nil
}

// probePeriod is how often a probe of the form asks, in seconds. Kubernetes' ten would make every
// pod that is not ready at its first probe ten seconds late.
const probePeriod = 2

// Probe returns a probe that asks over HTTP.
func Probe(path string, port int32) *runnerapi.Probe {
	return &runnerapi.Probe{HTTP: &runnerapi.HTTPProbe{Path: path, Port: port}, PeriodSeconds: probePeriod}
}

// ParsePublicPort reads PORT[:PUBLIC-PORT][/PROTOCOL], a port of the App's Service and one of the
// gateway.
func ParsePublicPort(s string) (p runnerapi.IngressPort, err error) {
	s, p.Protocol = cutProtocol(s)
	port, public, named := strings.Cut(s, ":")
	if p.Port, err = ParsePortNumber(port); err == nil && named {
		p.PublicPort, err = ParsePortNumber(public)
	}
	if err != nil {
		return p, fmt.Errorf("%w: expected PORT[:PUBLIC-PORT]", err)
	}
	return p, nil
}

func publicPortText(p runnerapi.IngressPort) string {
	text := strconv.Itoa(int(p.Port))
	if p.PublicPort != 0 {
		text += ":" + strconv.Itoa(int(p.PublicPort))
	}
	return text + protocolText(p.Protocol)
}
