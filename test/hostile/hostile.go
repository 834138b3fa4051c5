// Package hostile contains attacks that a listener must withstand: connections that are silent,
// slow, garbage, too large, or cleverly wrong, in TLS, HTTP/1.1 and HTTP/2. Tests send them to the
// real listeners and define the expected result.
package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"
)

// Attack is one hostile connection.
type Attack struct {
	Name string
	// Secure attacks need a TLS connection with the protocol ALPN, if it is not empty.
	Secure bool
	ALPN   string
	// Waits reports that the server ends the attack only when its timeout does.
	Waits bool
	// Do sends it. That the server has hung up meanwhile is not an error of its.
	Do func(net.Conn)
}

// Target is a listener.
type Target struct {
	Addr string
	// TLS is what a client needs to complete its handshake; its protocols are set by the
	// attack.
	TLS *tls.Config
	// Anywhere has connections come from random addresses of this machine's 127.0.0.0/8.
	Anywhere bool
}

// timeout bounds a single attack's dial, handshake and writing.
const timeout = 30 * time.Second

// Send starts an attack and returns the connection, for the test to observe the result.
func (t Target) Send(ctx context.Context, a Attack) (net.Conn, error) {
	conn, err := t.open(ctx, a)
	if err != nil {
		return nil, err
	}
	a.Do(conn)
	return conn, nil
}

func (t Target) open(ctx context.Context, a Attack) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	if t.Anywhere {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, byte(rand.IntN(250)), byte(rand.IntN(250)), byte(2+rand.IntN(250)))}
	}
	raw, err := d.DialContext(ctx, "tcp", t.Addr)
	if err != nil {
		return nil, err
	}
	_ = raw.SetDeadline(time.Now().Add(timeout))
	if !a.Secure {
		return raw, nil
	}
	cfg := t.TLS.Clone()
	cfg.NextProtos = nil
	if a.ALPN != "" {
		cfg.NextProtos = []string{a.ALPN}
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// Ended reads until the server ends the connection, and returns what the server sent. The error is
// os.ErrDeadlineExceeded if the server does not end it within the patience, and nil otherwise.
func Ended(conn net.Conn, patience time.Duration) (said []byte, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	said, err = io.ReadAll(io.LimitReader(conn, 1<<20))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return said, err
	}
	return said, nil
}

// Reset closes a connection without leaving state on either side.
func Reset(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = conn.Close()
}

// say returns a function that writes a text; the server may have hung up by then.
func say(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// Drip sends a text byte by byte, over and over, until the server hangs up (a slow loris), and
// reports whether it did within the patience.
func Drip(conn net.Conn, text string, every, patience time.Duration) bool {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	gone := make(chan error, 1)
	go func() {
		_, err := Ended(conn, patience)
		gone <- err
	}()
	for i := 0; ; i++ {
		select {
		case err := <-gone:
			return err == nil
		case <-ticker.C:
			_, _ = io.WriteString(conn, text[i%len(text):][:1])
		}
	}
}

// Slow returns attacks that take for ever: each begins well and continues byte by byte. The path
// must be readable without its own certificate.
func Slow(path string) []SlowAttack {
	head := " " + path + " HTTP/1.1\r\nHost: x\r\n"
	post := "POST" + head + "Content-Type: application/json\r\n"
	return []SlowAttack{
		{Name: "hello", begin: "\x16\x03\x01\x40\x00", drips: "\x01\x00\x20"},
		{Name: "header", secure: true, begin: "GET" + head, drips: "X: y\r\n"},
		{Name: "body", secure: true, begin: post + "Content-Length: 60000\r\n\r\n{", drips: " "},
		{Name: "chunks", secure: true, begin: post + "Transfer-Encoding: chunked\r\n\r\n", drips: "1\r\n \r\n"},
	}
}

// SlowAttack is one of Slow.
type SlowAttack struct {
	Name         string
	secure       bool
	begin, drips string
}

// Ended mounts the attack and reports whether the server hung up within the patience.
func (s SlowAttack) Ended(ctx context.Context, t Target, every, patience time.Duration) (bool, error) {
	conn, err := t.Send(ctx, Attack{Secure: s.secure, ALPN: "http/1.1", Do: say(s.begin)})
	if err != nil {
		return false, err
	}
	defer Reset(conn)
	return Drip(conn, s.drips, every, patience), nil
}

// mount is like Send on a busy machine, whose own handshake may be later than the server allows.
func (t Target) mount(ctx context.Context, a Attack) (conn net.Conn, err error) {
	for range 20 {
		conn, err = t.Send(ctx, a)
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			break
		}
	}
	return conn, err
}

// LeftOpen starts all attacks at once. It returns those that the server does not end within the
// patience, with the reason. allowed returns what an attacker may receive.
func (t Target) LeftOpen(ctx context.Context, attacks []Attack, patience time.Duration, allowed func(said []byte) bool) (left []string, err error) {
	conns := make([]net.Conn, len(attacks))
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				Reset(conn)
			}
		}
	}()
	for i, a := range attacks {
		if conns[i], err = t.mount(ctx, a); err != nil {
			return nil, fmt.Errorf("%s %s: %w", a.ALPN, a.Name, err)
		}
	}
	for i, a := range attacks {
		said, err := Ended(conns[i], patience)
		if err != nil || !allowed(said) {
			left = append(left, fmt.Sprintf("%s %s: %v, said %.200q", a.ALPN, a.Name, err, said))
		}
	}
	return left, nil
}
