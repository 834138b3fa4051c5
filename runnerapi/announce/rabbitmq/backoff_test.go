package rabbitmq

import (
	"errors"
	"net"
	"testing"

	"github.com/rs/zerolog"
)

// Where nobody listens the pauses stay short; where a broker refuses they grow.
func TestBackoff_ShortWhileDown(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := NewLink(Config{URLs: []string{"amqp://u:p@" + addr + "/"}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	down := l.once(t.Context(), &l.brokers[0], nil)
	if CodeOf(down) != CodeUnreachable {
		t.Fatal(down)
	}
	refused, unwanted := NewBackoff(), NewBackoff()
	for range 10 {
		if pause := nextPause(refused, down); pause > refusedPause {
			t.Errorf("a pause of %s while nobody listens", pause)
		}
		nextPause(unwanted, &Error{Op: "log in", Code: CodeBadLogin, Err: errors.New("no")})
	}
	if pause := unwanted.NextBackOff(); pause < maxPause/2 {
		t.Errorf("the pause after ten refused logins is %s, want %s", pause, maxPause)
	}
}
