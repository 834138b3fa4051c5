package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PortRanges are public ports of the gateway: 5432, "20000-20099", or "*" for any. An entry is for
// TCP and UDP, and with /tcp or /udp at its end for one of them.
type PortRanges []string

// UnmarshalJSON implements json.Unmarshaler. A port may be a number or a text.
func (p *PortRanges) UnmarshalJSON(text []byte) error {
	var entries []json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return err
	}
	list := make(PortRanges, 0, len(entries))
	for _, e := range entries {
		var n json.Number
		var s string
		if json.Unmarshal(e, &s) != nil {
			if err := json.Unmarshal(e, &n); err != nil {
				return fmt.Errorf("%.40q is neither a port nor a range such as 20000-20099", e)
			}
			s = n.String()
		}
		list = append(list, s)
	}
	*p = list
	return nil
}

// bounds returns the ports of a range, and the protocol that it is for; empty for both. ok is false
// for a text that is none.
func bounds(text string) (first, last int32, protocol string, ok bool) {
	text, suffix, limited := strings.Cut(text, "/")
	if protocol = strings.ToUpper(suffix); limited && suffix != "tcp" && suffix != "udp" {
		return 0, 0, "", false
	}
	if text == anything {
		return 0, 1<<16 - 1, protocol, true
	}
	from, to, ranged := strings.Cut(text, "-")
	if !ranged {
		to = from
	}
	a, err := strconv.ParseUint(from, 10, 16)
	b, failed := strconv.ParseUint(to, 10, 16)
	return int32(a), int32(b), protocol, err == nil && failed == nil && 0 < a && a <= b
}

// has reports whether a port may be named; 0 is any that the control plane chooses.
func (p PortRanges) has(port int32, protocol string) bool {
	return slices.ContainsFunc(p, func(text string) bool {
		first, last, of, ok := bounds(text)
		return ok && first <= port && port <= last && (of == "" || of == protocol)
	})
}

// publicPorts checks the ranges of ports.
func (c *checking) publicPorts(field string, p PortRanges) {
	for i, text := range p {
		if _, _, _, ok := bounds(text); !ok {
			c.add(fmt.Sprintf("%s[%d]", field, i), "%.40q is neither a port nor a range such as 20000-20099 or 53/udp, nor \"*\" for any", text)
		}
	}
}

// port checks a public port of an App.
func (r ruling) port(p runnerapi.PortIntent) error {
	switch {
	case r.PublicPorts == nil || r.Public != nil && !*r.Public:
		return r.outside(runnerapi.NameIntent{Field: p.Field, Name: portText(p)})
	case r.PublicPorts.has(p.Port, p.Protocol):
		return nil
	}
	return r.refuse(p.Field, "publicPorts", "allows the public ports %s, not %s", orNone(r.PublicPorts, "(none)"), portText(p))
}

// portText describes a public port.
func portText(p runnerapi.PortIntent) string {
	if p.Port == 0 {
		return "a public port of " + p.Protocol + " that the control plane chooses"
	}
	return fmt.Sprintf("the public port %d of %s", p.Port, p.Protocol)
}
