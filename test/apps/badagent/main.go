// Command badagent is released as a new version of the agent in tests of its update of
// itself. It is none: it does what a broken version does.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Set by the linker: crash, or never for one that runs and never registers.
var mode = "crash"

// what a version that never registers reports that it waits for.
const missing = "tunnel: connecting: no route to nowhere"

func main() {
	if mode == "crash" {
		fmt.Fprintln(os.Stderr, "the new version does not understand its old state")
		os.Exit(3)
	}
	if _, err := daemon.SdNotify(false, "STATUS="+missing); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	address := os.Getenv("PIPEOPS_HEALTH_ADDRESS")
	if address == "" {
		address = ":8080"
	}
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"detail":%q}`, "not ready: "+missing)
	})
	server := http.Server{Addr: address, ReadHeaderTimeout: time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
