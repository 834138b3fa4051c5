package hostile

import (
	"io"
	"net"
	"strings"
)

// HTTP1 returns attacks on HTTP/1.1. The path is one that exists.
func HTTP1(path string) []Attack {
	head := "POST " + path + " HTTP/1.1\r\nHost: x\r\n"
	attacks := []Attack{
		{Name: "half a request", Waits: true, Do: say("GET " + path + " HTTP/1.1\r\nHost: x\r\nX-")},
		{Name: "a header that never ends", Do: say("GET " + path + " HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 64<<10))},
		{Name: "headers that never end", Do: say("GET " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 12<<10))},
		{Name: "a request line that never ends", Do: say("GET /" + strings.Repeat("a", 64<<10))},
		{Name: "garbage", Do: say(strings.Repeat("\x00\xff", 64) + "\r\n\r\n")},
		{Name: "a NUL in a header", Do: say("GET " + path + " HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n")},
		{Name: "a space before the colon", Do: say(head + "Content-Length : 5\r\n\r\nhello")},
		{Name: "two lengths", Do: say(head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")},
		{Name: "a length below zero", Do: say(head + "Content-Length: -1\r\n\r\n")},
		{Name: "a length with a sign", Do: say(head + "Content-Length: +5\r\n\r\nhello")},
		{Name: "an encoding that is not known", Do: say(head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n")},
		{Name: "chunked twice", Do: say(head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")},
		{Name: "no host", Do: say("GET " + path + " HTTP/1.1\r\n\r\n")},
		{Name: "two hosts", Do: say("GET " + path + " HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n")},
		{Name: "HTTP/3.7", Do: say("GET " + path + " HTTP/3.7\r\nHost: x\r\n\r\n")},
		{Name: "HTTP/2's preface", Do: say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
		{Name: "another hello in place of a request", Do: say("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03\r\n\r\n")},
		{Name: "answers that nobody reads", Waits: true, Do: func(c net.Conn) {
			request := strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", 64)
			_, _ = io.WriteString(c, request)
		}},
	}
	for i := range attacks {
		attacks[i].Secure, attacks[i].ALPN = true, "http/1.1"
	}
	return attacks
}
