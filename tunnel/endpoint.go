package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// maxHost bounds a host's name (RFC 1035).
const maxHost = 253

// Endpoint is a server's tunnel listener.
type Endpoint struct {
	// Address is its host:port.
	Address string
	// ServerName is the name that its certificate must carry; empty means the host of
	// Address.
	ServerName string
}

// Check returns what is wrong with an endpoint that another party sent.
func (e Endpoint) Check() error {
	host, port, err := net.SplitHostPort(e.Address)
	if err != nil {
		return fmt.Errorf("tunnel: the address %.300q is not host:port", e.Address)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case !isHost(host):
		return fmt.Errorf("tunnel: the host of the address %.300q is none", e.Address)
	case err != nil || number == 0:
		return fmt.Errorf("tunnel: the port of the address %.300q is not from 1 to 65535", e.Address)
	case e.ServerName != "" && !isHost(e.ServerName):
		return fmt.Errorf("tunnel: the server name %.300q of %s is none", e.ServerName, e.Address)
	}
	return nil
}

// normal returns the endpoint in a form in which equal endpoints compare equal.
func (e Endpoint) normal() Endpoint {
	e.Address = strings.ToLower(e.Address)
	host, _, _ := net.SplitHostPort(e.Address)
	e.ServerName = strings.ToLower(cmp.Or(e.ServerName, host))
	return e
}

// isHost reports whether name may be a host's name: an IP address, or letters, digits, dots, dashes
// and underscores. Only dialling shows whether the host exists.
func isHost(name string) bool {
	ip, _, _ := strings.Cut(name, "%") // an IPv6 zone
	if net.ParseIP(ip) != nil {
		return true
	}
	return name != "" && len(name) <= maxHost && !strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(hostCharacters, r) })
}

const hostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// choose returns the first of the endpoints, as many as a Set keeps, each once. The error names the
// invalid ones, which are skipped.
func choose(endpoints []Endpoint) (chosen []Endpoint, err error) {
	var errs []error
	for _, e := range endpoints[:min(len(endpoints), maxTold)] {
		if len(chosen) == SetSize {
			break
		}
		if err := e.Check(); err != nil {
			errs = append(errs, err)
			continue
		}
		e = e.normal()
		if !slices.ContainsFunc(chosen, func(c Endpoint) bool { return c.Address == e.Address }) {
			chosen = append(chosen, e)
		}
	}
	return chosen, errors.Join(errs...)
}
