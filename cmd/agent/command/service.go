package command

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Where the agent as a service has its things: deployments/systemd, deployments/openrc.
const (
	serviceDir   = "/etc/pipeops"
	serviceState = "/var/lib/pipeops-agent"
)

// adoptService puts the settings of the service into this process' environment,
// below those that it has: the proxy's are read from there by others.
func adoptService() error {
	settings, err := serviceSettings()
	if err != nil {
		return err
	}
	for key, value := range settings {
		if os.Getenv(key) == "" {
			if err := os.Setenv(key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// serviceSettings returns those that the service is started with.
func serviceSettings() (map[string]string, error) {
	settings, err := readEnvironment(filepath.Join(serviceDir, "agent.env"))
	if err != nil {
		return nil, fmt.Errorf("--service: %w (fix: run as root, on the machine that the service is set up on)", err)
	}
	settings["AGENT_TOKEN_FILE"] = filepath.Join(serviceDir, "token")
	settings["KUBECONFIG"] = filepath.Join(serviceDir, "kubeconfig")
	settings["PIPEOPS_STATE_DIR"] = serviceState
	return settings, nil
}

// readEnvironment reads KEY=VALUE lines as systemd and OpenRC do, as far as the
// agent's settings need it: comments, and quotes around a value.
func readEnvironment(file string) (map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	settings := map[string]string{}
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		key, value, found := strings.Cut(strings.TrimSpace(scan.Text()), "=")
		if !found || strings.HasPrefix(key, "#") {
			continue
		}
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		settings[strings.TrimSpace(key)] = value
	}
	return settings, scan.Err()
}
