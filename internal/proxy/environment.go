package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// schemes are the kinds of proxies.
var schemes = map[string]bool{"http": true, "https": true, "socks5": true, "socks5h": true}

// FromEnvironment follows HTTPS_PROXY, HTTP_PROXY and NO_PROXY as they are now, like curl and Go's
// net/http. It never returns a proxy for this machine itself. For a host that a malformed variable
// concerns, it returns an *Error; net/http would connect directly.
func FromEnvironment() Func {
	set := httpproxy.FromEnvironment()
	failed := map[string]*Error{"http": check("http_proxy", set.HTTPProxy), "https": check("https_proxy", set.HTTPSProxy)}
	except := checkNoProxy(set.NoProxy)
	for of, value := range map[string]*string{"http": &set.HTTPProxy, "https": &set.HTTPSProxy} {
		if failed[of] != nil {
			*value = "http://malformed.invalid" // finds the hosts that it is for
		}
	}
	through := set.ProxyFunc()
	return func(to *url.URL) (*url.URL, error) {
		via, err := through(to)
		switch {
		case err != nil || via == nil:
			return via, err
		case failed[to.Scheme] != nil:
			return nil, failed[to.Scheme]
		case except != nil:
			return nil, except
		}
		return via, nil
	}
}

// check returns what is wrong with the URL of a proxy. The error does not contain it, because it
// may have a password.
func check(variable, value string) *Error {
	if value == "" {
		return nil
	}
	name := setName(variable)
	u, err := url.Parse(value)
	if !strings.Contains(value, "://") {
		u, err = url.Parse("http://" + value) // HOST:PORT
	}
	if err == nil {
		err = checkParts(u)
	} else {
		err = errors.New("it is not a URL")
	}
	if err == nil {
		return nil
	}
	return &Error{Variable: name, Final: true, Err: err, Fix: "set " + name + " to http://HOST:PORT, or unset it; percent-encode special characters of a user and password"}
}

func checkParts(u *url.URL) error {
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case !schemes[u.Scheme]:
		return fmt.Errorf("proxies of the kind %q are not supported, only http, https and socks5", u.Scheme)
	case u.Hostname() == "" || strings.ContainsAny(u.Hostname(), " \t/\\"):
		return errors.New("it names no host")
	case strings.Trim(u.Path, "/") != "":
		return errors.New("it has a path")
	case u.Port() != "" && (err != nil || port == 0):
		return fmt.Errorf("%q is not a port", u.Port())
	}
	return nil
}

// checkNoProxy returns the first item of a list that no host could match.
func checkNoProxy(list string) *Error {
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		var why string
		switch _, err := netip.ParsePrefix(item); {
		case strings.Contains(item, "://"):
			why = "is a URL"
		case strings.ContainsAny(item, " \t;"):
			why = "is not one host"
		case strings.Contains(item, "/") && err != nil:
			why = "is not a range of addresses"
		default:
			continue
		}
		name := setName("no_proxy")
		return &Error{
			Variable: name, Final: true, Err: fmt.Errorf("%q %s", item, why),
			Fix: "set " + name + " to hosts, .DOMAINS, IP addresses and CIDR ranges, separated by commas",
		}
	}
	return nil
}

// setName returns the name of a variable as it is set: httpproxy prefers lower case.
func setName(lower string) string {
	if os.Getenv(lower) != "" {
		return lower
	}
	return strings.ToUpper(lower)
}
