package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
)

// Hello returns a ClientHello of crypto/tls.
func Hello(cfg *tls.Config) []byte {
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	go func() {
		_ = tls.Client(far, cfg).HandshakeContext(context.Background())
		_ = far.Close()
	}()
	record := make([]byte, 5)
	if _, err := io.ReadFull(near, record); err != nil {
		return nil
	}
	body := make([]byte, int(record[3])<<8|int(record[4]))
	if _, err := io.ReadFull(near, body); err != nil {
		return nil
	}
	return slices.Concat(record, body)
}

// TLS returns attacks on readers of a ClientHello. They are for a server of that name.
func TLS(serverName string) []Attack {
	modern := Hello(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: serverName})
	old := func(v uint16) func(net.Conn) {
		hello := Hello(&tls.Config{MinVersion: v, MaxVersion: v, ServerName: serverName})
		return func(c net.Conn) { _, _ = c.Write(hello) }
	}
	fragments := bytes.Buffer{}
	for range 40 << 10 { // of one byte each: more than any hello, in records that are allowed
		fragments.Write([]byte{22, 3, 1, 0, 1, 0})
	}
	return []Attack{
		{Name: "silence", Waits: true, Do: say("")},
		{Name: "half a hello", Waits: true, Do: func(c net.Conn) { _, _ = c.Write(modern[:len(modern)/2]) }},
		{Name: "a record that is announced", Waits: true, Do: say("\x16\x03\x01\x40\x00")},
		{Name: "garbage", Do: say(strings.Repeat("\xde\xad\xbe\xef", 128))},
		{Name: "plain HTTP", Do: say("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{Name: "HTTP/2 without TLS", Do: say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")},
		{Name: "FRP without TLS", Do: say("o\x00\x00\x00\x00\x00\x00\x00\x02{}")},
		{Name: "FRP's TLS byte", Do: say("\x17" + "o\x00\x00\x00\x00\x00\x00\x00\x02{}")},
		{Name: "SSLv2 hello", Do: say("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x07\x00\xc0\x03\x00\x80\x01\x00\x80\x06\x00\x40\x04\x00\x80\x02\x00\x80" + strings.Repeat("r", 16))},
		{Name: "SSLv3 hello", Do: say("\x16\x03\x00\x00\x2d\x01\x00\x00\x29\x03\x00" + strings.Repeat("r", 32) + "\x00\x00\x02\x00\x0a\x01\x00")},
		{Name: "TLS 1.0 hello", Do: old(tls.VersionTLS10)},
		{Name: "TLS 1.1 hello", Do: old(tls.VersionTLS11)},
		{Name: "TLS 1.2 hello", Do: old(tls.VersionTLS12)},
		{Name: "an oversized record", Do: say("\x16\x03\x01\xff\xff" + strings.Repeat("x", 1024))},
		{Name: "an oversized hello", Do: say("\x16\x03\x01\x00\x04\x01\xff\xff\xff" + strings.Repeat("\x16\x03\x01\x00\x01\x00", 128))},
		{Name: "a hello in crumbs", Do: func(c net.Conn) { _, _ = c.Write(fragments.Bytes()) }},
		{Name: "an alert first", Do: say("\x15\x03\x01\x00\x02\x02\x28")},
		{Name: "data first", Do: say("\x17\x03\x03\x00\x02hi")},
		{Name: "a hello with its own length", Do: func(c net.Conn) {
			bent := bytes.Clone(modern)
			bent[8] += 9
			_, _ = c.Write(bent)
			_, _ = c.Write(modern)
		}},
	}
}
