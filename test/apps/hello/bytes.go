package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
)

// serveBytes checks that bytes arrive. It reads a line: "down N" is answered with N bytes and the
// end. "up N" takes N bytes and returns their SHA-256 in hexadecimal. "echo" sends back what it
// receives.
func serveBytes(ctx context.Context, addr string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			if err := moveBytes(conn); err != nil {
				log.Printf("bytes: %v", err)
			}
		}()
	}
}

func moveBytes(conn io.ReadWriter) error {
	in := bufio.NewReaderSize(conn, 64<<10)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	var what string
	var n int64
	_, _ = fmt.Sscan(line, &what, &n)
	switch what {
	case "down":
		_, err = io.Copy(conn, payload.Bytes(n))
	case "up":
		sum := sha256.New()
		if _, err = io.CopyN(sum, in, n); err == nil {
			_, err = fmt.Fprintf(conn, "%x", sum.Sum(nil))
		}
	case "echo":
		_, err = io.Copy(conn, in)
	default:
		err = fmt.Errorf("what is %.40q?", line)
	}
	return err
}

// sum prints a file's SHA-256.
func sum(file string) int {
	f, err := os.Open(file)
	if err != nil {
		log.Print(err)
		return 1
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	if err := errors.Join(err, f.Close()); err != nil {
		log.Print(err)
		return 1
	}
	fmt.Printf("%x\n", sum.Sum(nil))
	return 0
}
