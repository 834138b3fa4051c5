package tlsfiles

import (
	"crypto/tls"
	"net/http"
	"sync"
)

// Transport is an http.RoundTripper whose new connections have the configuration of its source as
// it is then. If that cannot be read, for example while a file is being replaced, the last one
// stays.
type Transport struct {
	base   *http.Transport
	source Source

	mu   sync.Mutex
	conf *tls.Config
	now  *http.Transport
}

// NewTransport returns a Transport with the settings of base, which the caller does not use
// otherwise.
func NewTransport(base *http.Transport, source Source) *Transport {
	if source == nil {
		source = Fixed(nil)
	}
	return &Transport{base: base, source: source}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	now, err := t.current()
	if err != nil {
		return nil, err
	}
	return now.RoundTrip(r)
}

// CloseIdleConnections closes those that are not in use.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		t.now.CloseIdleConnections()
	}
}

func (t *Transport) current() (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	conf, err := t.source()
	if err != nil && t.now == nil {
		return nil, err
	}
	if err != nil || conf == t.conf {
		return t.now, nil
	}
	next := t.base.Clone()
	next.TLSClientConfig = conf.Clone()
	if t.now != nil {
		t.now.CloseIdleConnections() // a CA that was taken away is good for no other request
	}
	t.conf, t.now = conf, next
	return next, nil
}
