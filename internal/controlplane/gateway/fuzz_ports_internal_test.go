package gateway

import (
	"io"
	"net"
	"testing"
	"time"
)

// FuzzReadAnswer reads what a hostile agent may answer to CONNECT.
func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\nhello"))
	f.Add([]byte("HTTP/1.1 503 Service Unavailable\r\nPipeops-Failed: not-ready\r\nContent-Length: 0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		near, far := net.Pipe()
		defer func() { _ = near.Close() }()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = far.Write(text)
			_ = far.Close()
		}()
		_ = near.SetDeadline(time.Now().Add(10 * time.Second))
		if conn, err := readAnswer(near); err == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
		_ = near.Close()
		<-sent
	})
}
