package runnerapi

import "github.com/pipeops/pipeops-vm-agent/internal/limit"

func (s AppSpec) visitors() *Visitors {
	if s.Ingress == nil {
		return nil
	}
	return s.Ingress.Visitors
}

func (v *Visitors) empty() bool {
	return len(v.AllowFrom) == 0 && v.BasicAuthSecret == "" && v.RequestsPerSecond == 0 && v.MaxBodyBytes == 0
}

// Widest networks that count as a choice of visitors, in bits.
const minBits4, minBits6 = 8, 16

// Protects reports whether not everyone is let in.
func (v *Visitors) Protects() bool {
	if v == nil {
		return false
	}
	narrow := len(v.AllowFrom) > 0 && every(v.AllowFrom, func(text string) bool {
		n, err := limit.ParseNetwork(text)
		return err == nil && (n.Addr().Is4() && n.Bits() >= minBits4 || n.Addr().Is6() && n.Bits() >= minBits6)
	})
	return narrow || v.BasicAuthSecret != ""
}
