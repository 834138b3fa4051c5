package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestBroker_ChecksName(t *testing.T) {
	for _, name := range []string{"../up", "Upper", "a b", "-x", strings.Repeat("a", 41)} {
		if _, err := Open(name, nil); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%q) = %v, want a complaint about the name", name, err)
		}
	}
}

func TestBroker_OwnPorts(t *testing.T) {
	root := t.TempDir()
	seen := map[int]string{}
	for _, name := range []string{"one", "two", "three"} {
		s, err := newState(t.Context(), root, root+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range s.ports() {
			if other := seen[port]; other != "" {
				t.Errorf("%s and %s share port %d", name, other, port)
			}
			seen[port] = name
		}
	}
}

// TestBroker_Life takes two real brokers through all they can do.
func TestBroker_Life(t *testing.T) {
	suite.Release(t, "the life of a broker")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()

	var out bytes.Buffer
	a := up(ctx, t, Options{Name: "a", Out: &out, ExtraSANs: []string{"broker.test"}})
	b := up(ctx, t, Options{Name: "b"})
	if a.Port() == b.Port() {
		t.Fatal("two brokers on one port")
	}
	if !strings.Contains(out.String(), "a is up on port "+strconv.Itoa(a.Port())) {
		t.Errorf("progress does not say that it is up:\n%s", &out)
	}

	t.Run("certificate", func(t *testing.T) { checkCertificate(t, a) })
	t.Run("loopback only", func(t *testing.T) { checkLoopback(t, a) })
	t.Run("users", func(t *testing.T) { checkUsers(ctx, t, a) })
	t.Run("page", func(t *testing.T) { checkPage(ctx, t, a) })
	t.Run("virtual hosts", func(t *testing.T) { checkVHosts(ctx, t, a) })

	declareDurable(t, a, "pipeops.kept")
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	if a.Running() || a.accepts(ctx) == nil {
		t.Fatal("killed, yet it answers")
	}
	if err := a.Start(ctx); err != nil {
		t.Fatal(err)
	}
	checkDurable(t, a, "pipeops.kept")
	checkHold(ctx, t, a)
	if err := a.Stop(ctx); err != nil || a.Running() {
		t.Fatalf("Stop = %v, running %v", err, a.Running())
	}
	port := a.Port()
	again := up(ctx, t, Options{Name: "a", ExtraSANs: []string{"broker.test"}})
	if again.Port() != port {
		t.Errorf("port was %d, after a stop %d", port, again.Port())
	}
	checkDurable(t, again, "pipeops.kept")

	if err := again.Down(ctx); err != nil {
		t.Fatal(err)
	}
	if left := again.processes(""); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if _, err := os.Stat(again.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	if err := b.accepts(ctx); err != nil {
		t.Errorf("the other broker went down too: %v", err)
	}
}

// checkHold holds the server: it lives, and answers nobody until it goes on.
func checkHold(ctx context.Context, t *testing.T, b *Broker) {
	if err := b.Hold(); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	if !b.Running() || b.accepts(waiting) == nil {
		t.Error("held, yet it is gone or answers")
	}
	cancel()
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := b.accepts(ctx); err != nil {
		t.Errorf("it goes on, yet: %v", err)
	}
}

func up(ctx context.Context, t *testing.T, opts Options) *Broker {
	t.Helper()
	b, err := Up(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Down(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("Down: %v", err)
		}
	})
	return b
}

func checkCertificate(t *testing.T, b *Broker) {
	for _, name := range []string{"127.0.0.1", "localhost", "broker.test"} {
		config := b.TLSConfig()
		config.ServerName = name
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", "127.0.0.1:"+strconv.Itoa(b.Port()), config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v := conn.ConnectionState().Version; v != tls.VersionTLS13 {
			t.Errorf("TLS version %x, want 1.3", v)
		}
		_ = conn.Close()
	}
}

// checkLoopback reads what the kernel says about every listening socket of ours.
func checkLoopback(t *testing.T, b *Broker) {
	found := 0
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		body, err := os.ReadFile(file)
		if err != nil {
			continue // no IPv6 here
		}
		for line := range strings.SplitSeq(string(body), "\n") {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != "0A" { // LISTEN
				continue
			}
			host, hexPort, _ := strings.Cut(fields[1], ":")
			port, err := strconv.ParseInt(hexPort, 16, 32)
			if err != nil {
				continue
			}
			for _, ours := range b.state.ports() {
				if int(port) == ours {
					found++
					if host != "0100007F" && host != "00000000000000000000000001000000" {
						t.Errorf("port %d listens on %s, not on loopback", port, host)
					}
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("found %d of our 4 listening ports", found)
	}
}

func checkUsers(ctx context.Context, t *testing.T, b *Broker) {
	out, err := b.Ctl(ctx, "--silent", "list_users")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(out); strings.Contains(text, "guest") || !strings.Contains(text, UserControlPlane) || !strings.Contains(text, UserRunner) {
		t.Errorf("users:\n%s", text)
	}
	guest := "amqps://guest:guest@" + b.address() + "/"
	if _, err := amqp.DialTLS(guest, b.TLSConfig()); err == nil {
		t.Error("guest may log in")
	}
}

func checkPage(ctx context.Context, t *testing.T, b *Broker) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.ManagementURL()+"api/whoami", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(UserControlPlane, b.Password(UserControlPlane))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var who struct{ Name string }
	if err := json.NewDecoder(resp.Body).Decode(&who); err != nil || who.Name != UserControlPlane {
		t.Errorf("page: %s, %q, %v", resp.Status, who.Name, err)
	}
}

// checkVHosts makes two virtual hosts: what is in one is not in the other.
func checkVHosts(ctx context.Context, t *testing.T, b *Broker) {
	one, err := b.NewVHost(ctx)
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.NewVHost(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const queue = "pipeops.runner.same"
	if _, err := channel(t, one).QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := channel(t, two).QueueDeclarePassive(queue, true, false, false, false, nil); err == nil {
		t.Error("a queue of one virtual host is in another")
	}
	conn, err := amqp.DialTLS(one.URL(UserRunner), b.TLSConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("pipeops.other", true, false, false, false, nil); err == nil {
		t.Error("the Runner's user may do more than in the broker's own virtual host")
	}
	if err := two.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := amqp.DialTLS(two.URL(UserControlPlane), b.TLSConfig()); err == nil {
		t.Error("the virtual host is deleted, yet it lets a user in")
	}
	if err := one.Delete(ctx); err != nil {
		t.Fatal(err)
	}
}

func channel(t *testing.T, b Endpoint) *amqp.Channel {
	t.Helper()
	conn, err := amqp.DialTLS(b.URL(UserControlPlane), b.TLSConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func declareDurable(t *testing.T, b *Broker, queue string) {
	t.Helper()
	_, err := channel(t, b).QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	if err != nil {
		t.Fatal(err)
	}
}

func checkDurable(t *testing.T, b *Broker, queue string) {
	t.Helper()
	_, err := channel(t, b).QueueDeclarePassive(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	if err != nil {
		t.Errorf("queue %s did not survive: %v", queue, err)
	}
}
