package runnerapi

import (
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

func (s AppSpec) visitors() *Visitors {
	if s.Ingress == nil {
		return nil
	}
	return s.Ingress.Visitors
}

func (v *Visitors) empty() bool {
	return len(v.AllowFrom) == 0 && v.BasicAuthSecret == "" && v.RequestsPerSecond == 0 && v.MaxBodyBytes == 0 &&
		v.SignIn == nil && v.ServiceTokensSecret == ""
}

// Secrets returns the names of the Secrets by which visitors are let in.
func (v *Visitors) Secrets() (names []string) {
	if v == nil {
		return nil
	}
	names = []string{v.BasicAuthSecret, v.ServiceTokensSecret}
	if v.SignIn != nil {
		names = append(names, v.SignIn.Secret)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

func (s AppSpec) signIn() *SignIn {
	if v := s.visitors(); v != nil {
		return v.SignIn
	}
	return nil
}

// everyone is the email that stands for each person whom a provider knows.
const everyone = "*"

// SignsIn reports whether visitors have to sign in, or need a service token. A provider that the
// deployer names may know everyone, so that to let in all of its persons is no choice.
func (v *Visitors) SignsIn() bool {
	return v != nil && v.SignIn != nil && (v.SignIn.Secret == "" || !slices.Contains(v.SignIn.Emails, everyone))
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
	return narrow || v.BasicAuthSecret != "" || v.SignsIn() || v.SignIn == nil && v.ServiceTokensSecret != ""
}
