package rabbitmq

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
)

// Config describes how to reach the brokers.
type Config struct {
	// URLs are amqps://user:password@host:port/vhost, one per broker of a cluster.
	URLs []string
	// TLS is used for amqps. Nil means the machine's trusted CAs.
	TLS *tls.Config
	// Reread returns URLs and TLS as they are now, for each new connection; nil if they do not
	// change.
	Reread func() (urls []string, tls *tls.Config, err error)
	Log    zerolog.Logger
	// Name is shown on the broker's page as the connection's name.
	Name string
	// Seal is the control plane's secret, by which it knows its own messages again. A
	// Runner has none.
	Seal []byte

	dialTimeout time.Duration // 0 is the usual one
}

// Status is the state of the connection to the broker, for readiness.
type Status struct {
	Connected bool
	Broker    string    // host:port of the connected broker
	Since     time.Time // of the last change between connected and not
	Err       error     // why it is not connected, or blocked
	// Standby is of a consumer that is connected and has heard nothing yet, while another
	// one was there when it came: its turn comes when that one has ended.
	Standby bool
}

const (
	dialTimeout  = 10 * time.Second
	closeTimeout = 3 * time.Second
	// SetupTimeout bounds the declarations that begin a session: a queue that has lost its leader
	// never answers them.
	SetupTimeout = 30 * time.Second
	// heartbeat: a broker that went silent is noticed after two to three of them.
	heartbeat    = 5 * time.Second
	writeTimeout = 30 * time.Second
)

// broker is one parsed URL. Keeping the password out of what is handed to the
// AMQP library as an address keeps it out of every error.
type broker struct {
	uri  amqp.URI
	addr string
}

// CheckURLs returns why one of some broker URLs cannot be one, without its password.
func CheckURLs(urls []string) error {
	_, err := parseBrokers(urls)
	return err
}

func parseBrokers(urls []string) ([]broker, error) {
	if len(urls) == 0 {
		return nil, errors.New("no broker URL was given: expected amqps://user:password@host:port/")
	}
	brokers := make([]broker, 0, len(urls))
	for i, text := range urls {
		uri, err := amqp.ParseURI(text)
		if err != nil {
			return nil, fmt.Errorf("broker URL %d (%s): %s", i+1, Redact(text), whyNotURI(err))
		}
		brokers = append(brokers, broker{uri: uri, addr: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))})
	}
	return brokers, nil
}

// whyNotURI drops the URL, and with it the password, that net/url quotes.
func whyNotURI(err error) string {
	const form = "expected amqps://user:password@host:port/ with special characters of the password percent-encoded"
	if !strings.Contains(err.Error(), "scheme must be") {
		return "cannot be parsed; " + form
	}
	return "the scheme must be amqps:// or amqp://; " + form
}

// Redact returns a broker URL that is safe to show, without its password. If it is uncertain which
// part is the password, as when a '/', '?' or '@' in it was not percent-encoded, it returns nothing
// of the URL.
func Redact(text string) string {
	u, err := url.Parse(text)
	ats := strings.Count(text, "@")
	if err != nil || u.Host == "" || ats > 1 || (ats == 1) != (u.User != nil) {
		return "not shown, it may hold a password"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

// Connection is an AMQP connection and what is below it. The library's calls know
// no context, and its deadlines are overwritten by heartbeats: closing the network
// connection is what ends a call for certain.
type Connection struct {
	*amqp.Connection
	Addr string
	raw  net.Conn
}

// dial connects to one broker and gives up when the context ends.
func (b *broker) dial(ctx context.Context, cfg *Config) (*Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.dialTimeout, dialTimeout))
	defer cancel()
	uri := b.uri
	uri.Username, uri.Password = "guest", "guest" // the library's defaults, which it leaves out of the URL
	var tlsConfig *tls.Config
	if cfg.TLS != nil {
		tlsConfig = cfg.TLS.Clone() // the library writes into it
	} else {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	var raw net.Conn
	var interrupt func() bool
	conn, err := amqp.DialConfig(uri.String(), amqp.Config{
		SASL:            []amqp.Authentication{b.uri.PlainAuth()},
		Vhost:           b.uri.Vhost,
		Heartbeat:       heartbeat,
		TLSClientConfig: tlsConfig,
		Properties:      amqp.Table{"connection_name": cfg.Name, "product": "pipeops"},
		Dial: func(_, addr string) (net.Conn, error) {
			c, err := proxy.FromEnvironment().Dial(ctx, addr)
			if err != nil {
				return nil, err
			}
			// The handshakes know no context: a closed connection ends them.
			interrupt = context.AfterFunc(ctx, func() { _ = c.Close() })
			raw = &deadlineConn{Conn: c}
			return raw, nil
		},
	})
	if interrupt != nil && !interrupt() {
		err = ctx.Err()
	}
	if err != nil {
		if raw != nil {
			_ = raw.Close()
		}
		return nil, dialError(b.uri.Username, b.addr, err)
	}
	return &Connection{Connection: conn, Addr: b.addr, raw: raw}, nil
}

// Shutdown closes the session in order, within a short time. The library closes the network
// connection.
func (c *Connection) Shutdown() {
	hard := time.AfterFunc(closeTimeout, func() { _ = c.raw.Close() })
	defer hard.Stop()
	_ = c.Close() // it was lost already, or is soon
}

// Bound ends the connection unless the returned function is called in time.
func (c *Connection) Bound(ctx context.Context) (done func()) {
	stopContext := context.AfterFunc(ctx, func() { _ = c.raw.Close() })
	timer := time.AfterFunc(SetupTimeout, func() { _ = c.raw.Close() })
	return func() {
		stopContext()
		timer.Stop()
	}
}

// deadlineConn bounds every write: the AMQP library's writes know no context, and
// a peer that stopped reading would hold them for ever.
type deadlineConn struct{ net.Conn }

func (c *deadlineConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
