package rabbitmq

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// Link keeps a connection to one of the brokers: it connects, lets the session
// work, and does so again until its context ends.
type Link struct {
	Log zerolog.Logger

	mu      sync.Mutex
	cfg     Config
	brokers []broker
	status  Status
}

// NewLink returns a Link after it has checked the URLs.
func NewLink(cfg Config) (*Link, error) {
	brokers, err := parseBrokers(cfg.URLs)
	if err != nil {
		return nil, err
	}
	return &Link{cfg: cfg, brokers: brokers, Log: cfg.Log, status: Status{Since: time.Now()}}, nil
}

// current returns the brokers as they are configured now. If that cannot be read, they stay as they
// were.
func (l *Link) current() ([]broker, Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.Reread == nil {
		return l.brokers, l.cfg
	}
	urls, conf, err := l.cfg.Reread()
	if err == nil {
		var brokers []broker
		if brokers, err = parseBrokers(urls); err == nil {
			l.brokers, l.cfg.TLS = brokers, conf
		}
	}
	if err != nil {
		l.Log.Warn().Err(err).Msg("failed to reload the broker's configuration; using the previous one")
	}
	return l.brokers, l.cfg
}

// sessionFunc works with one connection.
type sessionFunc func(ctx context.Context, conn *Connection) error

// Run gives each new connection to session, which returns when it is done with
// it. Only the end of the context ends Run. It begins with any of the brokers, so that
// not all of us are at the first of the list, and continues with the next.
func (l *Link) Run(ctx context.Context, session sessionFunc) error {
	wait := NewBackoff()
	for next := rand.IntN(1 << 16); ctx.Err() == nil; next++ { // #nosec G404 -- spreading load needs no secrecy
		brokers, cfg := l.current()
		b := &brokers[next%len(brokers)]
		started := time.Now()
		err := once(ctx, b, &cfg, session)
		if ctx.Err() != nil {
			break
		}
		err = WithBroker(err, b.addr)
		changed := l.Disconnected(err)
		if time.Since(started) > stablePeriod {
			wait.Reset()
		}
		pause := nextPause(wait, err)
		// A repeated failure is logged once, and then only at debug level.
		level := zerolog.DebugLevel
		if changed {
			level = zerolog.WarnLevel
		}
		l.Log.WithLevel(level).Err(err).Str("broker", b.addr).Dur("retry_in", pause).Msg("not connected to the broker")
		retry.Wait(ctx, pause)
	}
	l.Disconnected(context.Cause(ctx))
	return context.Cause(ctx)
}

// Dial connects to the first broker that answers, for one piece of work. The caller calls Shutdown.
func (l *Link) Dial(ctx context.Context) (*Connection, error) {
	var errs []error
	brokers, cfg := l.current()
	for i := range brokers {
		conn, err := brokers[i].dial(ctx, &cfg)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// once returns one connection's life. The connection is closed when it returns.
func once(ctx context.Context, b *broker, cfg *Config, session sessionFunc) error {
	conn, err := b.dial(ctx, cfg)
	if err != nil {
		return err
	}
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case reason := <-closed:
			cancel(lostError(b.addr, reason))
		case <-ctx.Done():
		}
	})
	err = session(ctx, conn)
	cancel(nil)
	watch.Wait()
	conn.Shutdown()
	// That the connection was lost explains more than what failed because of it.
	if lost := context.Cause(ctx); CodeOf(lost) == CodeLost && (err == nil || errors.Is(err, amqp.ErrClosed) || errors.Is(err, context.Canceled)) {
		return lost
	}
	return err
}

func lostError(addr string, reason *amqp.Error) error {
	e := &Error{Op: "keep the connection", Broker: addr, Code: CodeLost, Fix: "it is tried again"}
	if reason != nil {
		e.Err = reason
	} else {
		e.Err = amqp.ErrClosed
	}
	return e
}

// WithBroker adds the address to errors that were created without it.
func WithBroker(err error, addr string) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Broker == "" {
		e.Broker = addr
	}
	return err
}

// Connected notes that a session with the broker at addr has begun.
func (l *Link) Connected(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = Status{Connected: true, Broker: addr, Since: time.Now()}
	l.Log.Info().Str("broker", addr).Msg("connected to the broker")
}

// Standby notes whether another consumer has the queue.
func (l *Link) Standby(so bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Standby = so
}

// Disconnected records why there is no connection and reports whether that is a change.
func (l *Link) Disconnected(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.status.Connected || l.status.Err == nil || CodeOf(l.status.Err) != CodeOf(err)
	since := l.status.Since
	if l.status.Connected {
		since = time.Now()
	}
	l.status = Status{Since: since, Err: err}
	return news
}

// Blocked notes that the broker takes no messages for now ("" when it does again).
func (l *Link) Blocked(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Err = nil
	if reason != "" {
		l.status.Err = &Error{Op: "publish", Broker: l.status.Broker, Code: CodeBlocked,
			Err: errors.New(reason), Fix: "free memory or disk on the broker"}
	}
}

// Status returns the state of the connection.
func (l *Link) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Addrs returns the brokers' addresses, for messages.
func (l *Link) Addrs() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, b := range l.brokers {
		if !slices.Contains(all, b.addr) {
			all = append(all, b.addr)
		}
	}
	return strings.Join(all, ", ")
}
