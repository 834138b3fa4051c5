// Command fakek3s is a FAKE of k3s for the installer's tests. Its cluster is the project's test
// cluster, which it asks the test to start. Towards install.sh it behaves as k3s does: its files,
// its port, its service.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	settingsFile   = "/etc/fake-k3s.json"
	kubeconfigFile = "/etc/rancher/k3s/k3s.yaml"
	notReadyFile   = "/run/fake-k3s-not-ready" // while it is there, no node is listed
	kubectlFile    = "/var/lib/rancher/k3s/fake-kubectl"
	serverDir      = "/var/lib/rancher/k3s/server"
	agentDir       = "/var/lib/rancher/k3s/agent"
	apiAddress     = "127.0.0.1:6443"
)

// settings are written by the test.
type settings struct {
	Version string `json:"version"`
	Test    string `json:"test"` // URL of the test, which starts clusters
}

// cluster is the test's answer.
type cluster struct {
	Kubeconfig string `json:"kubeconfig"`
	API        string `json:"api"` // HOST:PORT to which the API's port is relayed
	Token      string `json:"token"`
	Kubectl    string `json:"kubectl"` // the program that has kubectl in it
}

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "kubectl" { // by the link of that name
		args = append([]string{"kubectl"}, args...)
	}
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "fake k3s:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var s settings
	text, err := os.ReadFile(settingsFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("a command is missing")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	switch args[0] {
	case "--version":
		fmt.Printf("k3s version %s (fake)\n", s.Version)
		return nil
	case "kubectl":
		if _, err := os.Stat(notReadyFile); err == nil && slices.Contains(args, "nodes") {
			return nil
		}
		program, err := os.ReadFile(kubectlFile)
		if err != nil {
			return err
		}
		environment := os.Environ()
		if os.Getenv("KUBECONFIG") == "" {
			environment = append(environment, "KUBECONFIG="+kubeconfigFile)
		}
		return syscall.Exec(string(program), append([]string{string(program)}, args...), environment)
	case "server":
		return server(ctx, s)
	case "agent":
		return agent(ctx, s)
	case "fake-uninstall":
		return ask(ctx, s.Test+"/fake/uninstall", nil, &struct{}{})
	}
	return fmt.Errorf("a fake has no %s", args[0])
}

// server makes the test start a cluster and stands in front of its API.
func server(ctx context.Context, s settings) error {
	var c cluster
	if err := ask(ctx, s.Test+"/fake/server", nil, &c); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", apiAddress)
	if err != nil {
		return err
	}
	if err := errors.Join(
		write(kubeconfigFile, c.Kubeconfig),
		write(filepath.Join(serverDir, "node-token"), c.Token),
		write(kubectlFile, c.Kubectl),
	); err != nil {
		return err
	}
	go relay(ctx, l, c.API)
	ready(ctx)
	<-ctx.Done()
	return nil
}

// agent joins: the test makes a Node of it, and keeps it alive while it is asked to.
func agent(ctx context.Context, s settings) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	join := map[string]string{"server": os.Getenv("K3S_URL"), "token": os.Getenv("K3S_TOKEN"), "node": hostname}
	var c cluster
	if err := ask(ctx, s.Test+"/fake/agent", join, &c); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", apiAddress)
	if err != nil {
		return err
	}
	if err := errors.Join(write(filepath.Join(agentDir, "kubelet.kubeconfig"), c.Kubeconfig), write(kubectlFile, c.Kubectl)); err != nil {
		return err
	}
	go relay(ctx, l, c.API)
	ready(ctx)
	<-ctx.Done()
	return nil
}

// ask posts to the test.
func ask(ctx context.Context, url string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(said)))
	}
	return json.Unmarshal(said, answer)
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// relay copies connections to the cluster's API.
func relay(ctx context.Context, l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close() //nolint:errcheck // both ways are over
			out, err := new(net.Dialer).DialContext(ctx, "tcp", to)
			if err != nil {
				return
			}
			defer out.Close() //nolint:errcheck // both ways are over
			go func() { _, _ = io.Copy(out, in) }()
			_, _ = io.Copy(in, out)
		}()
	}
}

// ready notifies systemd, as a service of type notify must.
func ready(ctx context.Context) {
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // one datagram
	_, _ = conn.Write([]byte("READY=1"))
}
