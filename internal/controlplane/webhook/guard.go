package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
)

// CheckURL returns what is wrong with a receiver's URL. An address in it is checked as it is before
// a connection; a name resolves only then.
func CheckURL(text string, allowHTTP, allowPrivate bool) error {
	const form = "give https://HOST/PATH"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return errors.New("--url: is not a URL; " + form)
	case u.User != nil:
		return errors.New("--url: must not have a user or password: every operator who lists webhooks would see it; the receiver verifies the signature instead")
	case u.Fragment != "":
		return errors.New("--url: has a #fragment, which is never sent; leave it out")
	case u.Scheme == "https", u.Scheme == "http" && allowHTTP:
		if to, err := netip.ParseAddr(u.Hostname()); err == nil {
			if err := guardOf(text, allowPrivate).check(to); err != nil {
				return fmt.Errorf("--url: %w", err)
			}
		}
		return nil
	case u.Scheme == "http":
		return errors.New("--url: is not https, so others on the network could read the events; " + form + ", or, for a receiver on this very machine, add --allow-http")
	}
	return errors.New("--url: is not https; " + form)
}

// guard decides which addresses may be called.
type guard struct {
	// loopbackOnly is for http, whose traffic others must not be able to read.
	loopbackOnly bool
	allowPrivate bool
}

func guardOf(url string, allowPrivate bool) guard {
	return guard{loopbackOnly: strings.HasPrefix(strings.ToLower(url), "http:"), allowPrivate: allowPrivate}
}

// control returns a net.Dialer's Control. It gets the address of a name right before the
// connection, so a name that resolves to another address next time is still checked.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	return g.check(to.Addr())
}

func (g guard) check(to netip.Addr) error {
	to = egress.Plain(to)
	switch {
	case g.loopbackOnly && !to.IsLoopback():
		return fmt.Errorf("%s is not this machine: http is for receivers on it alone; use https", to)
	case g.loopbackOnly:
		return nil
	case egress.IsMetadata(to):
		return fmt.Errorf("%s is a link-local, metadata or multicast address, to which nothing is sent", to)
	case !g.allowPrivate && egress.IsPrivate(to):
		return fmt.Errorf("%s is a private address; if the receiver is meant to be there, create the webhook with --allow-private", to)
	}
	return nil
}
