package broker

import (
	"context"
	"sync"
	"testing"
	"time"
)

const (
	upTimeout   = 15 * time.Minute // it may have to be installed
	downTimeout = time.Minute
)

// Shared is a broker for all tests of a package. The first test that needs it starts it. The
// package's TestMain calls Stop.
type Shared struct {
	once   sync.Once
	broker *Broker
	err    error
}

// VHost returns a new virtual host for a test, which is deleted when the test ends. Under -short
// the test is skipped.
func (s *Shared) VHost(t testing.TB) *VHost {
	t.Helper()
	skipShort(t)
	s.once.Do(func() { s.broker, s.err = upForTest() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	v, err := s.broker.NewVHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Delete(context.Background()); err != nil {
			t.Errorf("delete the test's virtual host: %v", err)
		}
	})
	return v
}

// Stop brings the broker down if there is one.
func (s *Shared) Stop() error {
	if s.broker == nil {
		return nil
	}
	return down(s.broker)
}

// OwnForTest starts a broker for one test that stops, kills or reconfigures it, and removes it
// after the test. All other tests take a virtual host of a Shared. Under -short the test is
// skipped.
func OwnForTest(t testing.TB) *Broker {
	t.Helper()
	skipShort(t)
	b, err := upForTest()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := down(b); err != nil {
			t.Errorf("bring the broker down: %v", err)
		}
	})
	return b
}

func skipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real RabbitMQ")
	}
}

func upForTest() (*Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), upTimeout)
	defer cancel()
	return Up(ctx, nil)
}

func down(b *Broker) error {
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	return b.Down(ctx)
}
