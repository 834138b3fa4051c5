// Command grpcserver serves the test service of gRPC's interoperability tests, without TLS, at a
// port of the loopback address that it prints. Upstream's own command does not choose a free port.
//
// See https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md.
package main

import (
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	"google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ln.Addr())
	srv := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(srv, interop.NewTestServer())
	log.Fatal(srv.Serve(ln))
}
