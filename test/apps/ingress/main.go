// Command ingress stands in for an ingress controller with a load balancer. It ends TLS with a
// certificate of its own, which nothing trusts, and passes requests to one address. It adds a
// header by which visitors see that they came this way.
package main

import (
	"crypto/tls"
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

const headerTimeout = 10 * time.Second

func main() {
	listen := flag.String("listen", ":443", "address to listen on")
	to := flag.String("to", "", "HOST:PORT that gets the requests, by HTTP")
	flag.Parse()
	log.Fatal(serve(*listen, *to))
}

func serve(listen, to string) error {
	certificate, _, err := selfsigned.Pair("ingress")
	if err != nil {
		return err
	}
	srv := &http.Server{
		Addr: listen, Handler: passTo(to), ReadHeaderTimeout: headerTimeout,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}},
	}
	return srv.ListenAndServeTLS("", "")
}

func passTo(to string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: to})
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Set("Server", "ingress")
			return nil
		},
	}
}
