package broker

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Endpoint is a place that a client connects to: a whole broker or a virtual host of one.
type Endpoint interface {
	// URL is the amqps:// URL of a user, password included: do not print it.
	URL(user string) string
	// TLSConfig verifies the server.
	TLSConfig() *tls.Config
}

// VHost is a virtual host of a broker: it has exchanges, queues and permissions of its own.
// The users are the broker's.
type VHost struct {
	broker *Broker
	name   string
}

// NewVHost returns a virtual host in which users have the same permissions as in "/".
func (b *Broker) NewVHost(ctx context.Context) (*VHost, error) {
	v := &VHost{broker: b, name: "test-" + strings.ToLower(rand.Text()[:8])}
	if err := b.manage(ctx, http.MethodPut, "vhosts/"+v.name, nil); err != nil {
		return nil, err
	}
	for _, p := range permissions {
		if err := b.manage(ctx, http.MethodPut, "permissions/"+v.name+"/"+p.User, p); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Delete removes the virtual host with all that is in it. RabbitMQ closes its connections.
func (v *VHost) Delete(ctx context.Context) error {
	return v.broker.manage(ctx, http.MethodDelete, "vhosts/"+v.name, nil)
}

// Name returns the virtual host's name.
func (v *VHost) Name() string { return v.name }

// URL returns Broker.URL with the virtual host.
func (v *VHost) URL(user string) string { return v.broker.urlIn(user, v.broker.address(), v.name) }

// URLAt is like URL with another address for the server, such as a forwarder's.
func (v *VHost) URLAt(user, address string) string { return v.broker.urlIn(user, address, v.name) }

// Address returns the server's host and port.
func (v *VHost) Address() string { return v.broker.address() }

// TLSConfig verifies the broker by its own CA.
func (v *VHost) TLSConfig() *tls.Config { return v.broker.TLSConfig() }

// CAFile returns the CA's certificate in PEM.
func (v *VHost) CAFile() string { return v.broker.CAFile() }

// Ctl runs rabbitmqctl against the broker. A command about a virtual host needs --vhost.
func (v *VHost) Ctl(ctx context.Context, args ...string) ([]byte, error) {
	return v.broker.Ctl(ctx, args...)
}

// manage calls the management API as the administrator. rabbitmqctl does the same, but starts
// an Erlang VM for each call, which takes a second or two.
func (b *Broker) manage(ctx context.Context, method, path string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, b.ManagementURL()+"api/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.SetBasicAuth(userAdmin, b.Password(userAdmin))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusMultipleChoices {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("broker: %s %s: %s: %s", method, path, resp.Status, said)
	}
	return nil
}

func (b *Broker) urlIn(user, address, vhost string) string {
	u := url.URL{
		Scheme: "amqps",
		User:   url.UserPassword(user, b.passwords[user]),
		Host:   address,
		Path:   "/" + vhost,
	}
	return u.String()
}
